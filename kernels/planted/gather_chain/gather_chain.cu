// A load whose place another load tells: the first one hits L1, the second one does not.
#include "../busy.cuh"

// big repeats small, so that the guilty kernel and its twin read the same values. offsets leads all over big, which
// stays in L2 and is too large for L1; offsets and small, 4 KB each, stay in L1. An offset is the same for a whole warp
// and leads to a line of 128 bytes, so that nothing but the latency of either load counts; the value is needed after
// the work of its step, which covers two loads from L1.
#define OFFSETS 1024
#define SMALL 1024

extern "C" __global__ void gather_chain_guilty(
    const unsigned* offsets, const unsigned* big, const unsigned* small, unsigned* out, int size, int steps)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned at = thread, sum = 0;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        const unsigned offset = offsets[(thread / 32 + step) & (OFFSETS - 1)];
        // @region gather
        const unsigned value = big[(at + offset) & (size - 1)];
        // @end
        at += gridDim.x * blockDim.x;
        sum = toil(sum, 2) ^ value;
    }
    out[thread] = sum;
}

extern "C" __global__ void gather_chain_fixed(
    const unsigned* offsets, const unsigned* big, const unsigned* small, unsigned* out, int size, int steps)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned at = thread, sum = 0;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        const unsigned offset = offsets[(thread / 32 + step) & (OFFSETS - 1)];
        // @region gather
        const unsigned value = small[(at + offset) & (SMALL - 1)];
        // @end
        at += gridDim.x * blockDim.x;
        sum = toil(sum, 2) ^ value;
    }
    out[thread] = sum;
}
