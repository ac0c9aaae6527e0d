// Sixteen conversions of a float to an integer a step: they share the special-function unit.
#include "../busy.cuh"

// Whole numbers from n + 1 to n + 16 are added up. The guilty kernel converts them. Its twin makes the same additions,
// but leaves 2^23 in: a number below it stands in the low bits of the sum.
extern "C" __global__ void conversion_guilty(unsigned* out, int steps)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned sum = thread + 1;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        sum = busy(sum);
        const float number = __uint_as_float(0x4b000000u | (sum & 0xffff));  // 2^23 + n
        unsigned total = 0;
#pragma unroll
        for (int j = 1; j <= 16; ++j) {
            const float t = number + (j - 8388608.f);
            // @region convert
            const unsigned whole = static_cast<unsigned>(t);
            // @end
            total += whole;
        }
        sum += total;
    }
    out[thread] = sum;
}

extern "C" __global__ void conversion_fixed(unsigned* out, int steps)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned sum = thread + 1;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        sum = busy(sum);
        const float number = __uint_as_float(0x4b000000u | (sum & 0xffff));
        unsigned total = 0;
#pragma unroll
        for (int j = 1; j <= 16; ++j) {
            const float t = number + j;
            // @region convert
            const unsigned whole = __float_as_uint(t) - 0x4b000000u;
            // @end
            total += whole;
        }
        sum += total;
    }
    out[thread] = sum;
}
