// An array that is indexed at run time lies in local memory: each read is an LDL.
#include "../busy.cuh"

#define SLOTS 64
#define READS 4

// table holds i * factor + summand at i. All lanes read the same slot, and each has a copy of it in local memory.
extern "C" __global__ void spill_guilty(
    const unsigned* table, unsigned* out, int steps, int work, unsigned factor, unsigned summand)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned slots[SLOTS];
    for (unsigned i = 0; i < SLOTS; ++i) slots[i] = table[i];
    unsigned at = threadIdx.x / 32, sum = thread;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
#pragma unroll
        for (int i = 0; i < READS; ++i) {
            // @region slots
            at = slots[at % SLOTS];
            // @end
        }
        sum = toil(sum + at, work);
    }
    out[thread] = sum;
}

extern "C" __global__ void spill_fixed(
    const unsigned* table, unsigned* out, int steps, int work, unsigned factor, unsigned summand)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned at = threadIdx.x / 32, sum = thread;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
#pragma unroll
        for (int i = 0; i < READS; ++i) {
            // @region slots
            at = at % SLOTS * factor + summand;
            // @end
        }
        sum = toil(sum + at, work);
    }
    out[thread] = sum;
}
