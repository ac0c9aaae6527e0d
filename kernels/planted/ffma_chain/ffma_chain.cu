// A chain of float multiply-adds, each waiting for the one before.
#include "../busy.cuh"

// The scale is one, which the compiler does not know. All values are whole numbers below 2^24, so the order of the
// additions does not matter.
extern "C" __global__ void ffma_chain_guilty(unsigned* out, float scale, int steps)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned sum = thread + 1;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        sum = busy(sum);
        const float b = __uint_as_float(0x4b000000u | (sum & 0xffff)) - 8388608.f;
        float f = b;
        // @region chain
#pragma unroll
        for (int i = 0; i < 24; ++i)
            f = fmaf(f, scale, b);
        // @end
        sum += __float_as_uint(f);
    }
    out[thread] = sum;
}

extern "C" __global__ void ffma_chain_fixed(unsigned* out, float scale, int steps)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned sum = thread + 1;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        sum = busy(sum);
        const float b = __uint_as_float(0x4b000000u | (sum & 0xffff)) - 8388608.f;
        float f = b;
        // @region chain
        f = fmaf(24.f, b, f * scale);
        // @end
        sum += __float_as_uint(f);
    }
    out[thread] = sum;
}
