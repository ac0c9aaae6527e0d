// Bursts of stores that nobody reads: they fill the queue of the load/store unit.
#include "../busy.cuh"

#define BURST 16
// Steps until a place is written again: 35 MB at the measured size, which stay in L2.
#define TURNS 8

extern "C" __global__ void store_burst_guilty(unsigned* log, unsigned* out, int steps, int work)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    unsigned x = thread;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        x = toil(x, work);
        unsigned* place = log + step % TURNS * BURST * threads + thread;
#pragma unroll
        for (int i = 0; i < BURST; ++i) {
            // @region burst
            place[i * threads] = x + i;
            // @end
        }
    }
    out[thread] = x;
}

extern "C" __global__ void store_burst_fixed(unsigned* log, unsigned* out, int steps, int work)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned x = thread;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) x = toil(x, work);
    out[thread] = x;
}
