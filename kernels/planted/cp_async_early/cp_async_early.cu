// A tile copied to shared memory in the background and waited for at once, before work that does not need it.
#include "../busy.cuh"

#define WARPS 4
#define TILE 128

// A warp copies a tile for itself alone, 16 bytes a lane: there is no barrier that could hide the wait.
__device__ __forceinline__ void copy_async(unsigned* to, const unsigned* from)
{
    const unsigned place = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(place), "l"(from) : "memory");
}

__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

__device__ __forceinline__ void wait_for_copies() { asm volatile("cp.async.wait_group 0;" ::: "memory"); }

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    cp_async_early_guilty(const unsigned* table, unsigned* out, int tiles, int steps, int work)
{
    __shared__ __align__(16) unsigned shared[WARPS][TILE];
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
    unsigned* const tile = shared[threadIdx.x / 32];
    unsigned state = thread, sum = 0;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        const unsigned* const from = table + (thread / 32 + 5 * step & tiles - 1) * TILE;
        // @region tile
        copy_async(tile + 4 * lane, from + 4 * lane);
        commit();
        wait_for_copies();
        // @end
#pragma unroll 1
        for (int i = 0; i < work; ++i) state = busy(state);
        __syncwarp();
        sum += tile[(step % 4) * 32 + lane];
        __syncwarp();
    }
    out[thread] = state + sum;
}

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    cp_async_early_fixed(const unsigned* table, unsigned* out, int tiles, int steps, int work)
{
    __shared__ __align__(16) unsigned shared[WARPS][TILE];
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
    unsigned* const tile = shared[threadIdx.x / 32];
    unsigned state = thread, sum = 0;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        const unsigned* const from = table + (thread / 32 + 5 * step & tiles - 1) * TILE;
        // @region tile
        copy_async(tile + 4 * lane, from + 4 * lane);
        commit();
        // @end
#pragma unroll 1
        for (int i = 0; i < work; ++i) state = busy(state);
        // @region tile
        wait_for_copies();
        // @end
        __syncwarp();
        sum += tile[(step % 4) * 32 + lane];
        __syncwarp();
    }
    out[thread] = state + sum;
}
