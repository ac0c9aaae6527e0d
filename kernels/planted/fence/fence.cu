// A memory fence after every store, though nobody else reads: it waits until the store has arrived in L2.
#include "../busy.cuh"

extern "C" __global__ void fence_guilty(unsigned* out, int steps, int work)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    volatile unsigned* own = out + thread;
    unsigned x = thread;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        x = toil(x, work);
        *own = x;
        // @region fence
        __threadfence();
        // @end
    }
}

extern "C" __global__ void fence_fixed(unsigned* out, int steps, int work)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    volatile unsigned* own = out + thread;
    unsigned x = thread;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        x = toil(x, work);
        *own = x;
    }
}
