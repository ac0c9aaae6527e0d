// Products of 16 x 32 by 32 x 8 bytes on the tensor cores, more than they can take.
#include "../busy.cuh"

// sums += a * b on the tensor cores: 16 rows of 32 signed bytes by 8 columns of 32.
__device__ __forceinline__ void multiply(int (&sums)[4], unsigned a, uint2 b)
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %4, %4, %4}, {%5, %6}, "
        "{%0, %1, %2, %3};"
        : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
        : "r"(a), "r"(b.x), "r"(b.y));
}

// All bytes of a are one number and all bytes of b another, the same throughout a warp: an element of the product is
// 32 times theirs. The twin adds up the four bytes of a instead, and multiplies once, after the loop.
// A look-up beside it, past L1, lets most of the time that is left pass without an instruction.
extern "C" __global__ void __launch_bounds__(1024)
imma_guilty(const unsigned* table, const uint2* weights, unsigned* out, int steps)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned sum = thread / 32 + 1;
    uint2 b[7];
    int sums[7][4] = {};
#pragma unroll
    for (int i = 0; i < 7; ++i)
        b[i] = weights[i];
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        sum = busy(sum + __ldcg(table + (sum & 0xffff)));
        const unsigned a = (sum & 7) * 0x01010101u;
#pragma unroll
        for (int i = 0; i < 14; ++i) {
            // @region matrix
            multiply(sums[i % 7], a, b[i % 7]);
            // @end
        }
    }
#pragma unroll
    for (int i = 0; i < 28; ++i)
        sum += sums[i / 4][i % 4];
    out[thread] = sum;
}

extern "C" __global__ void __launch_bounds__(1024)
imma_fixed(const unsigned* table, const uint2* weights, unsigned* out, int steps)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned sum = thread / 32 + 1, bytes = 0, weight = 0;
#pragma unroll
    for (int i = 0; i < 7; ++i)
        weight += weights[i].x & 255;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        sum = busy(sum + __ldcg(table + (sum & 0xffff)));
        const unsigned a = (sum & 7) * 0x01010101u;
        // @region matrix
        bytes = __dp4a(a, 0x01010101u, bytes);
        // @end
    }
    // Two products with each b, of which a thread holds four elements; the four bytes are a's number four times.
    out[thread] = sum + bytes * (2 * 32) * weight;
}
