// A warp's values are added up by shuffles in every step, though the sum is needed at the end alone.
#include "../busy.cuh"

extern "C" __global__ void shuffle_reduce_guilty(unsigned* out, int steps, int work, unsigned none)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned x = thread, total = 0;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        // Tied to the sum by none, which is 0: the next step waits for it.
        x = toil(x + (total & none), work);
        unsigned part = x;
#pragma unroll
        for (int bit = 1; bit < 32; bit *= 2) {
            // @region sum
            part += __shfl_xor_sync(~0u, part, bit);
            // @end
        }
        total += part;
    }
    out[thread] = total;
}

extern "C" __global__ void shuffle_reduce_fixed(unsigned* out, int steps, int work, unsigned none)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned x = thread, total = 0;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        x = toil(x + (total & none), work);
        total += x;
    }
#pragma unroll
    for (int bit = 1; bit < 32; bit *= 2) {
        // @region sum
        total += __shfl_xor_sync(~0u, total, bit);
        // @end
    }
    out[thread] = total;
}
