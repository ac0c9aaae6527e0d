// A dense series of branches that all lanes of a warp take alike.
#include "../busy.cuh"

// Four times x ^= x >> s, which is x ^ x >> 4 s: long enough for the compiler to jump over it. A macro keeps its line.
#define ONCE(x, s) ((x) ^ (x) >> (s))
#define FOUR_TIMES(x, s) ONCE(ONCE(ONCE(ONCE(x, s), s), s), s)

// Five bits, the same for a warp, each set in one of 32 words.
__device__ __forceinline__ unsigned rare(unsigned x)
{
    return x & x >> 6 & x >> 12 & x >> 18 & x >> 24 & 31;
}

extern "C" __global__ void uniform_branches_guilty(unsigned* out, int steps)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned word = thread / 32, sum = thread;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        word = toil(word + step, 2);
        const unsigned flags = rare(word);
        // @region cases
#pragma unroll
        for (int bit = 0; bit < 5; ++bit)
            if (flags >> bit & 1) sum += FOUR_TIMES(word, bit + 1);
        // @end
    }
    out[thread] = sum;
}

extern "C" __global__ void uniform_branches_fixed(unsigned* out, int steps)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned word = thread / 32, sum = thread;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        word = toil(word + step, 2);
        const unsigned flags = rare(word);
        // @region cases
#pragma unroll
        for (int bit = 0; bit < 5; ++bit)
            sum += flags >> bit & 1 ? ONCE(word, 4 * (bit + 1)) : 0;
        // @end
    }
    out[thread] = sum;
}
