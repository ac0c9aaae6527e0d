// One instruction waits for two loads, of which only the first misses L1.
#include "../busy.cuh"

// big repeats small, so that the guilty kernel and its twin read the same values. All threads together walk big in
// order, and none meets a line again that its multiprocessor has in L1; big stays in L2. small, 4 KB, stays in L1. The
// load that hits is issued last: the order does not tell which one is late.
// The way out between the loads (stop, -1) is never taken: it makes the compiler give each load a scoreboard.
#define SMALL 1024

extern "C" __global__ void two_loads_l1_guilty(
    const unsigned* big, const unsigned* small, unsigned* out, int size, int steps, int stop)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned at = thread & (size - 1), sum = 0;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        // @region far
        const unsigned far = big[at];
        // @end
        if (step == stop) {
            sum = far;
            break;
        }
        const unsigned near = small[(thread + 32 * step + SMALL / 2) & (SMALL - 1)];
        at = (at + gridDim.x * blockDim.x) & (size - 1);
        sum = sum ^ far ^ near;
        sum = busy(sum);
        sum = busy(sum);
    }
    out[thread] = sum;
}

extern "C" __global__ void two_loads_l1_fixed(
    const unsigned* big, const unsigned* small, unsigned* out, int size, int steps, int stop)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned at = thread & (size - 1), sum = 0;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        // @region far
        const unsigned far = small[at & (SMALL - 1)];
        // @end
        if (step == stop) {
            sum = far;
            break;
        }
        const unsigned near = small[(thread + 32 * step + SMALL / 2) & (SMALL - 1)];
        at = (at + gridDim.x * blockDim.x) & (size - 1);
        sum = sum ^ far ^ near;
        sum = busy(sum);
        sum = busy(sum);
    }
    out[thread] = sum;
}
