// The warps of a block loop for very different times, then meet at a barrier.
#include "../busy.cuh"

#define THREADS 256

// Rounding down to a multiple of 1000, and then of 500, 250 and 125, changes nothing after the first trip.
extern "C" __global__ void __launch_bounds__(THREADS)
    unbalanced_loop_guilty(const int* trips, unsigned* out, int steps, int work)
{
    __shared__ unsigned message[2][THREADS];
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    const int own = trips[threadIdx.x / 32];
    unsigned state = thread;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        unsigned x = state;
        // @region loop
#pragma unroll 1
        for (int i = 0; i < own; ++i)
            x = x / 1000 * 1000 / 500 * 500 / 250 * 250 / 125 * 125;
        // @end
        message[step % 2][threadIdx.x] = x;
        __syncthreads();
        state += message[step % 2][(threadIdx.x + 32) % THREADS];
#pragma unroll 1
        for (int i = 0; i < work; ++i) state = busy(state);
    }
    out[thread] = state;
}

// Every warp loops as long as the shortest one.
extern "C" __global__ void __launch_bounds__(THREADS)
    unbalanced_loop_fixed(const int* trips, unsigned* out, int steps, int work)
{
    __shared__ unsigned message[2][THREADS];
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    const int shortest = trips[0];
    unsigned state = thread;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        unsigned x = state;
        // @region loop
#pragma unroll 1
        for (int i = 0; i < shortest; ++i)
            x = x / 1000 * 1000 / 500 * 500 / 250 * 250 / 125 * 125;
        // @end
        message[step % 2][threadIdx.x] = x;
        __syncthreads();
        state += message[step % 2][(threadIdx.x + 32) % THREADS];
#pragma unroll 1
        for (int i = 0; i < work; ++i) state = busy(state);
    }
    out[thread] = state;
}
