// A loop body of 393 KB, which no instruction cache of a multiprocessor holds, beside the same loop rolled.
#include "../busy.cuh"

// Macros, since a loop of as many steps is not unrolled whole: all instructions belong to the line that uses them.
#define TIMES_4(x) x x x x
#define TIMES_16(x) TIMES_4(TIMES_4(x))
#define TIMES_6144(x) TIMES_16(TIMES_16(TIMES_4(x x x x x x)))

// Warps of a block start apart, and all do as much in the end: one that follows another would find its lines.
__device__ __forceinline__ int early(int rest)
{
    return threadIdx.x / 32 % 4 * rest;
}

extern "C" __global__ void instruction_cache_guilty(unsigned* out, int passes, int rest)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned a = thread, b = ~thread;
#pragma unroll 1
    for (int i = 0; i < early(rest); ++i) a = busy(a);
#pragma unroll 1
    for (int pass = 0; pass < passes; ++pass) {
        unsigned key = 0;
        // @region body
        TIMES_6144(key += 0x9e3779b9u; a = (a ^ key) * 0x85ebca6bu; b = (b ^ key) * 0xc2b2ae35u;)
        // @end
    }
#pragma unroll 1
    for (int i = early(rest); i < 3 * rest; ++i) b = busy(b);
    out[thread] = a + b;
}

extern "C" __global__ void instruction_cache_fixed(unsigned* out, int passes, int rest)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned a = thread, b = ~thread;
#pragma unroll 1
    for (int i = 0; i < early(rest); ++i) a = busy(a);
#pragma unroll 1
    for (int pass = 0; pass < passes; ++pass) {
        unsigned key = 0;
        // @region body
#pragma unroll 1
        for (int part = 0; part < 384; ++part) {
            TIMES_16(key += 0x9e3779b9u; a = (a ^ key) * 0x85ebca6bu; b = (b ^ key) * 0xc2b2ae35u;)
        }
        // @end
    }
#pragma unroll 1
    for (int i = early(rest); i < 3 * rest; ++i) b = busy(b);
    out[thread] = a + b;
}
