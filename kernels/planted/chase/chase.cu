// A dependent pointer chase: each load's address is the last load's result.
#include "../busy.cuh"

// next holds at i the place i + STRIDE modulo a power of two: the guilty kernel looks it up, its twin adds it. Lanes
// stay side by side, so that a load is one line of 128 bytes and nothing but its latency counts.
#define STRIDE (32 * 1237)

extern "C" __global__ void chase_guilty(const unsigned* next, unsigned* out, int size, int steps)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned at = thread & (size - 1), sum = 0;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        // @region chase
        at = next[at];
        // @end
        sum += busy(at);
        sum = busy(sum);
    }
    out[thread] = sum;
}

extern "C" __global__ void chase_fixed(const unsigned* next, unsigned* out, int size, int steps)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned at = thread & (size - 1), sum = 0;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        // @region chase
        at = (at + STRIDE) & (size - 1);
        // @end
        sum += busy(at);
        sum = busy(sum);
    }
    out[thread] = sum;
}
