// Four items a step for each warp: four of its lanes work on them, the others wait.
#include "../busy.cuh"

constexpr int ROUNDS = 4;

// What an item weighs.
__device__ __forceinline__ unsigned weigh(unsigned item)
{
#pragma unroll 1
    for (int round = 0; round < ROUNDS; ++round)
        item = busy(item + round);
    return item;
}

extern "C" __global__ void half_lanes_guilty(unsigned* out, int steps)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x, lane = thread % 32, warp = thread / 32;
    unsigned x = thread, item = warp * steps * 4 + lane, weight = 0;
#pragma unroll 1
    for (int left = steps; left > 0; --left, item += 4) {
        x = busy(x + left);
        // @region items
        if (lane < 4) {
            weight += weigh(item);
        }
        // @end
    }
    out[thread] = x + __reduce_add_sync(~0u, weight);
}

// The same items, those of eight steps at a time, one for each lane.
extern "C" __global__ void half_lanes_fixed(unsigned* out, int steps)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x, lane = thread % 32, warp = thread / 32;
    unsigned x = thread, item = warp * steps * 4 + lane, weight = 0;
#pragma unroll 1
    for (int left = steps; left > 0; --left, item += 4) {
        x = busy(x + left);
        // @region items
        if (left % 8 == 0) {
            weight += weigh(item);
        }
        // @end
    }
    out[thread] = x + __reduce_add_sync(~0u, weight);
}
