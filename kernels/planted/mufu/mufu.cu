// Sixteen exponentials a step on the special-function unit, which takes a warp's instruction every eighth cycle.
#include "../busy.cuh"

// 2 to the t, exact for a whole t.
__device__ __forceinline__ float exponential(float t)
{
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(t));
    return power;
}

// The bits of the powers from 2^n to 2^(n + 15) are added up. The guilty kernel asks for each. Its twin makes the same
// additions, but with 2^23 and the exponent's bias in the sum, which so has in its low bits those that belong at 23.
extern "C" __global__ void mufu_guilty(unsigned* out, int steps)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned sum = thread + 1;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        sum = busy(sum);
        const float number = __uint_as_float(0x4b000000u | (sum & 15));  // 2^23 + n
        unsigned series = 0;
#pragma unroll
        for (int j = 0; j < 16; ++j) {
            const float t = number + (j - 8388608.f);
            // @region exponential
            const unsigned power = __float_as_uint(exponential(t));
            // @end
            series += power;
        }
        sum += series;
    }
    out[thread] = sum;
}

extern "C" __global__ void mufu_fixed(unsigned* out, int steps)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned sum = thread + 1;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        sum = busy(sum);
        const float number = __uint_as_float(0x4b000000u | (sum & 15));
        unsigned series = 0;
#pragma unroll
        for (int j = 0; j < 16; ++j) {
            const float t = number + (j + 127.f);
            // @region exponential
            const unsigned power = __float_as_uint(t) << 23;
            // @end
            series += power;
        }
        sum += series;
    }
    out[thread] = sum;
}
