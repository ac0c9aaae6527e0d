// A software-pipelined load whose distance, one pass of the loop, is too short.
#include "../busy.cuh"

// table holds at i the product i * FACTOR: the guilty kernel looks it up a pass early, its twin computes it. All
// threads together walk the table in order, and none meets a line again that its multiprocessor has in L1; the table
// stays in L2.
// The way out in the middle (stop, -1) is never taken: it keeps the compiler from issuing the load before the value of
// the pass before is used, and from copying the new value, thus waiting for it, at the end of the same pass.
#define FACTOR 0x9e3779b1u

extern "C" __global__ void pipelined_guilty(const unsigned* table, unsigned* out, int size, int steps, int stop)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned at = thread & (size - 1), value = at * FACTOR, sum = 0;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        sum ^= value;
        at = (at + gridDim.x * blockDim.x) & (size - 1);
        if (step == stop)
            break;
        // @region fetch
        value = table[at];
        // @end
        sum = busy(sum);
    }
    out[thread] = sum;
}

extern "C" __global__ void pipelined_fixed(const unsigned* table, unsigned* out, int size, int steps, int stop)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned at = thread & (size - 1), value = at * FACTOR, sum = 0;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        sum ^= value;
        at = (at + gridDim.x * blockDim.x) & (size - 1);
        if (step == stop)
            break;
        // @region fetch
        value = at * FACTOR;
        // @end
        sum = busy(sum);
    }
    out[thread] = sum;
}
