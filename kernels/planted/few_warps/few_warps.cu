// Too few warps to cover the latency of a load. Both kernels are the same: the launch is guilty.
#include "../busy.cuh"

// A warp takes 32 tasks at a time. The table is the same for all lanes of a warp: a load is one line.
__device__ __forceinline__ void work(const unsigned* table, unsigned* out, int size, int tasks, int steps)
{
    for (unsigned task = blockIdx.x * blockDim.x + threadIdx.x; task < tasks; task += gridDim.x * blockDim.x) {
        unsigned at = busy(task / 32);
#pragma unroll 1
        for (int step = 0; step < steps; ++step) {
            // @region load
            const unsigned value = table[(at & (size - 32)) + task % 32];
            // @end
            at = (at ^ value) * 0x85ebca6bu;
        }
        out[task] = at + task;
    }
}

extern "C" __global__ void __launch_bounds__(1024)
    few_warps_guilty(const unsigned* table, unsigned* out, int size, int tasks, int steps)
{
    work(table, out, size, tasks, steps);
}

extern "C" __global__ void __launch_bounds__(1024)
    few_warps_fixed(const unsigned* table, unsigned* out, int size, int tasks, int steps)
{
    work(table, out, size, tasks, steps);
}
