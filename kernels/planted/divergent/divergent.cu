// Two kinds of element, each with its own long calculation: in a warp of both kinds, all lanes wait through both.
#include "../busy.cuh"

constexpr int ROUNDS = 8;

// Even and odd elements take turns in what they do.
extern "C" __global__ void divergent_guilty(unsigned* out, int steps)
{
    const unsigned element = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned x = element;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        x = busy(x + step);
        // @region kinds
        if ((element ^ step) & 1) {
#pragma unroll 1
            for (int round = ROUNDS; round > 0; --round)
                x = busy(x + round);
        } else {
#pragma unroll 1
            for (int round = ROUNDS; round > 0; --round)
                x = busy(x ^ round);
        }
        // @end
    }
    out[element] = x;
}

// The same elements, but each warp has 32 of one kind.
extern "C" __global__ void divergent_fixed(unsigned* out, int steps)
{
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const unsigned element = blockIdx.x * blockDim.x + warp / 2 * 64 + lane * 2 + warp % 2;
    unsigned x = element;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        x = busy(x + step);
        // @region kinds
        if ((element ^ step) & 1) {
#pragma unroll 1
            for (int round = ROUNDS; round > 0; --round)
                x = busy(x + round);
        } else {
#pragma unroll 1
            for (int round = ROUNDS; round > 0; --round)
                x = busy(x ^ round);
        }
        // @end
    }
    out[element] = x;
}
