// A table in constant memory, read by lanes at different places: the constant cache serves one address at a time.
#include "../busy.cuh"

#define ENTRY(i) ((i) * 0x9e3779b1u)
#define FOUR(i) ENTRY(i), ENTRY(i + 1), ENTRY(i + 2), ENTRY(i + 3)
#define SIXTEEN(i) FOUR(i), FOUR(i + 4), FOUR(i + 8), FOUR(i + 12)

__constant__ unsigned table[64] = {SIXTEEN(0u), SIXTEEN(16u), SIXTEEN(32u), SIXTEEN(48u)};

extern "C" __global__ void indexed_constant_guilty(unsigned* out, int steps, int work)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned x = thread;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        // @region table
        x ^= table[x % 64];
        // @end
        x = toil(x, work);
    }
    out[thread] = x;
}

extern "C" __global__ void indexed_constant_fixed(unsigned* out, int steps, int work)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned x = thread;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        // @region table
        x ^= ENTRY(x % 64);
        // @end
        x = toil(x, work);
    }
    out[thread] = x;
}
