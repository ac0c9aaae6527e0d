// Every lane adds to one word of shared memory, in every step, and waits for the old value.
#include "../busy.cuh"

// none is 0, which the compiler does not know: it would add a warp's values up first, and not wait.
extern "C" __global__ void shared_atomics_guilty(unsigned* out, int steps, int work, unsigned none)
{
    __shared__ unsigned total[32];
    total[threadIdx.x % 32] = 0;
    __syncthreads();
    unsigned* word = total + (threadIdx.x & none);
    unsigned x = blockIdx.x * blockDim.x + threadIdx.x;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        x = toil(x, work);
        // @region total
        x += atomicAdd(word, x) & none;
        // @end
    }
    __syncthreads();
    if (threadIdx.x == 0) out[blockIdx.x] = total[0];
}

extern "C" __global__ void shared_atomics_fixed(unsigned* out, int steps, int work, unsigned none)
{
    __shared__ unsigned total[32];
    total[threadIdx.x % 32] = 0;
    __syncthreads();
    unsigned* word = total + (threadIdx.x & none);
    unsigned x = blockIdx.x * blockDim.x + threadIdx.x, own = 0;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        x = toil(x, work);
        // @region total
        own += x;
        // @end
    }
    atomicAdd(word, own);
    __syncthreads();
    if (threadIdx.x == 0) out[blockIdx.x] = total[0];
}
