// One warp of eight comes late to every barrier: it alone has a long chain of work before it.
#include "../busy.cuh"

#define THREADS 256
#define CHAIN 96

extern "C" __global__ void __launch_bounds__(THREADS) late_warp_guilty(
    unsigned* out, int steps, unsigned factor, unsigned term, unsigned far_factor, unsigned far_term)
{
    __shared__ unsigned message[2][32];
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
    unsigned state = thread, value = thread;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        if (threadIdx.x < 32) {
            // @region chain
#pragma unroll 8
            for (int i = 0; i < CHAIN; ++i)
                value = value * factor + term;
            // @end
            message[step % 2][lane] = value;
        }
        __syncthreads();
        state += message[step % 2][lane];
#pragma unroll 1
        for (int i = 0; i < 3; ++i) state = busy(state);
    }
    out[thread] = state;
}

// CHAIN steps of the chain are one with another factor and another term.
extern "C" __global__ void __launch_bounds__(THREADS) late_warp_fixed(
    unsigned* out, int steps, unsigned factor, unsigned term, unsigned far_factor, unsigned far_term)
{
    __shared__ unsigned message[2][32];
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
    unsigned state = thread, value = thread;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        if (threadIdx.x < 32) {
            // @region chain
            value = value * far_factor + far_term;
            // @end
            message[step % 2][lane] = value;
        }
        __syncthreads();
        state += message[step % 2][lane];
#pragma unroll 1
        for (int i = 0; i < 3; ++i) state = busy(state);
    }
    out[thread] = state;
}
