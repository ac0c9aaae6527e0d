// One instruction waits for two loads that both miss L1, of which only the first misses L2.
#include "../busy.cuh"

// Both loads leave L1 out (ld.global.cg). All threads together walk scratch in order, 256 MB of zeros, and a launch
// ends before any line of it is met again. The table, 4 MB, stays in L2, as do the first 4 MB of scratch, where the
// twin reads. The load that hits L2 is issued last: the order does not tell which one is late.
// The way out between the loads (stop, -1) is never taken: it makes the compiler give each load a scoreboard.
#define NEAR (1 << 20)

extern "C" __global__ void two_loads_l2_guilty(
    const unsigned* scratch, const unsigned* table, unsigned* out, int size, int steps, int stop)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned at = thread & (size - 1), sum = 0;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        // @region far
        const unsigned far = __ldcg(scratch + at);
        // @end
        if (step == stop) {
            sum = far;
            break;
        }
        const unsigned near = __ldcg(table + (at & (NEAR - 1)));
        at = (at + gridDim.x * blockDim.x) & (size - 1);
        sum = sum ^ far ^ near;
        sum = busy(sum);
        sum = busy(sum);
    }
    out[thread] = sum;
}

extern "C" __global__ void two_loads_l2_fixed(
    const unsigned* scratch, const unsigned* table, unsigned* out, int size, int steps, int stop)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned at = thread & (size - 1), sum = 0;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        // @region far
        const unsigned far = __ldcg(scratch + (at & (NEAR - 1)));
        // @end
        if (step == stop) {
            sum = far;
            break;
        }
        const unsigned near = __ldcg(table + (at & (NEAR - 1)));
        at = (at + gridDim.x * blockDim.x) & (size - 1);
        sum = sum ^ far ^ near;
        sum = busy(sum);
        sum = busy(sum);
    }
    out[thread] = sum;
}
