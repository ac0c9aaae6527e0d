// A barrier in every step that no data needs, between warps whose work differs from step to step.
#include "../busy.cuh"

#define THREADS 256
#define ROUND 16

// In a round of 16 steps each warp has 0 to 15 pieces of work, in an order of its own: all have the same in the end.
__device__ __forceinline__ unsigned pieces(unsigned warp, unsigned step)
{
    return (step * (2 * warp + 1) + (busy(warp + step / ROUND) >> 7)) % ROUND;
}

extern "C" __global__ void __launch_bounds__(THREADS) barrier_each_guilty(unsigned* out, int steps)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned state = thread;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        const unsigned count = pieces(thread / 32, step);
#pragma unroll 1
        for (unsigned i = 0; i < count; ++i) state = busy(state);
        // @region barrier
        __syncthreads();
        // @end
    }
    out[thread] = state;
}

extern "C" __global__ void __launch_bounds__(THREADS) barrier_each_fixed(unsigned* out, int steps)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned state = thread;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        const unsigned count = pieces(thread / 32, step);
#pragma unroll 1
        for (unsigned i = 0; i < count; ++i) state = busy(state);
        // @region barrier
        // No warp reads what another one wrote.
        // @end
    }
    out[thread] = state;
}
