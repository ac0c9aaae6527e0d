// A load in a function that is called, not inlined: samples lie outside the kernel's own code.
#include "../busy.cuh"

// The table holds at all 32 places of a row the row after it, (5 row + 1) mod rows: a load is one line.
__device__ __noinline__ unsigned stored(const unsigned* table, unsigned row, unsigned lane, unsigned rows)
{
    // @region look_up
    return table[row * 32 + lane];
    // @end
}

__device__ __noinline__ unsigned computed(const unsigned* table, unsigned row, unsigned lane, unsigned rows)
{
    // @region look_up
    return (5 * row + 1) & (rows - 1);
    // @end
}

extern "C" __global__ void call_chain_guilty(const unsigned* table, unsigned* out, int rows, int steps)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned row = busy(thread / 32) & (rows - 1), sum = thread;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        row = stored(table, row, thread % 32, rows);
        sum = toil(sum + row, 4);
    }
    out[thread] = sum;
}

extern "C" __global__ void call_chain_fixed(const unsigned* table, unsigned* out, int rows, int steps)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned row = busy(thread / 32) & (rows - 1), sum = thread;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        row = computed(table, row, thread % 32, rows);
        sum = toil(sum + row, 4);
    }
    out[thread] = sum;
}
