// Every lane of the grid adds to one word of global memory, in every step, and waits for the old value.
#include "../busy.cuh"

// none is 0, which the compiler does not know: it would add a warp's values up first, and not wait for the old ones.
extern "C" __global__ void global_atomics_guilty(unsigned* total, unsigned* out, int steps, int work, unsigned none)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned x = thread;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        // @region total
        x += atomicAdd(total + (x & none), x & 1) & none;
        // @end
        x = toil(x, work);
    }
    out[thread] = x;
}

extern "C" __global__ void global_atomics_fixed(unsigned* total, unsigned* out, int steps, int work, unsigned none)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned x = thread, own = 0;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        // @region total
        own += x & 1;
        // @end
        x = toil(x, work);
    }
    atomicAdd(total + (x & none), own);
    out[thread] = x;
}
