// One function, inlined at two calls: the first finds its line in L1, the second misses it.
#include "../busy.cuh"

__device__ __forceinline__ unsigned fetch(const unsigned* table, unsigned at)
{
    return table[at];
}

// The table repeats itself after `period` words, and is the same for all lanes of a warp: a load is one line.
extern "C" __global__ void inlined_twice_guilty(const unsigned* table, unsigned* out, int size, int period, int steps)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x, lane = thread % 32;
    unsigned at = busy(thread / 32), sum = thread;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        const unsigned close = fetch(table, (at & (period - 32)) + lane);
        at = busy(at ^ close);
        // @region far
        const unsigned far = fetch(table, (at & (size - 32)) + lane);
        // @end
        at = busy(at + far);
        sum += at;
    }
    out[thread] = sum;
}

extern "C" __global__ void inlined_twice_fixed(const unsigned* table, unsigned* out, int size, int period, int steps)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x, lane = thread % 32;
    unsigned at = busy(thread / 32), sum = thread;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        const unsigned close = fetch(table, (at & (period - 32)) + lane);
        at = busy(at ^ close);
        // @region far
        const unsigned far = fetch(table, (at & (period - 32)) + lane);
        // @end
        at = busy(at + far);
        sum += at;
    }
    out[thread] = sum;
}
