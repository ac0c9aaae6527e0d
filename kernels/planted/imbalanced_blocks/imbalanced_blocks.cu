// Blocks of very different length: the first has four times as much to do as any other.
#include "../busy.cuh"

// A block takes a task at a time, all of the same length, from first to last.
__device__ __forceinline__ void work(unsigned* out, int first, int last, int steps)
{
#pragma unroll 1
    for (int task = first; task < last; ++task) {
        const unsigned place = task * blockDim.x + threadIdx.x;
        unsigned sum = place;
#pragma unroll 1
        for (int step = 0; step < steps; ++step) sum = busy(sum + step);
        out[place] = sum;
    }
}

extern "C" __global__ void imbalanced_blocks_guilty(unsigned* out, int tasks, int share, int steps)
{
    const int first = blockIdx.x ? (blockIdx.x + 3) * share : 0;
    work(out, first, min(first + (blockIdx.x ? share : 4 * share), tasks), steps);
}

extern "C" __global__ void imbalanced_blocks_fixed(unsigned* out, int tasks, int share, int steps)
{
    const int first = blockIdx.x * share;
    work(out, first, min(first + share, tasks), steps);
}
