// One block more than fits at once: a second wave with a single block. Both kernels are the same: the launch is guilty.
#include "../busy.cuh"

// A block takes a task at a time, all of the same length.
__device__ __forceinline__ void work(unsigned* out, int tasks, int steps)
{
#pragma unroll 1
    for (int task = blockIdx.x; task < tasks; task += gridDim.x) {
        const unsigned place = task * blockDim.x + threadIdx.x;
        unsigned sum = place;
#pragma unroll 1
        for (int step = 0; step < steps; ++step) sum = busy(sum + step);
        out[place] = sum;
    }
}

extern "C" __global__ void tail_wave_guilty(unsigned* out, int tasks, int steps)
{
    work(out, tasks, steps);
}

extern "C" __global__ void tail_wave_fixed(unsigned* out, int tasks, int steps)
{
    work(out, tasks, steps);
}
