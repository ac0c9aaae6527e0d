// A bulk copy to shared memory that is waited for at once on its mbarrier, before work that does not need it (sm_90).
#include "../busy.cuh"

#define WARPS 4
#define TILE 1024

__device__ __forceinline__ unsigned place_of(const void* shared)
{
    return static_cast<unsigned>(__cvta_generic_to_shared(shared));
}

// The barrier's phase ends when one thread has arrived and this many bytes are there.
__device__ __forceinline__ void expect(unsigned barrier, unsigned bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void bulk_copy(unsigned to, const unsigned* from, unsigned bytes, unsigned barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}

__device__ __forceinline__ bool try_wait(unsigned barrier, unsigned parity)
{
    unsigned done;
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, p;\n"
                 "}"
                 : "=r"(done)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    return done;
}

__device__ __forceinline__ void wait_for_copy(unsigned barrier, unsigned parity)
{
    while (!try_wait(barrier, parity)) {
    }
}

// A barrier for each warp, known to the copy engine.
__device__ __forceinline__ void make_barrier(unsigned barrier)
{
    if (threadIdx.x % 32 == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncwarp();
}

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    bulk_wait_guilty(const unsigned* table, unsigned* out, int tiles, int steps, int work)
{
    __shared__ __align__(128) unsigned shared[WARPS][TILE];
    __shared__ unsigned long long barriers[WARPS];
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
    const unsigned* const tile = shared[threadIdx.x / 32];
    const unsigned to = place_of(tile), barrier = place_of(barriers + threadIdx.x / 32);
    unsigned state = thread, sum = 0;
    make_barrier(barrier);
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        const unsigned* const from = table + (thread / 32 + 5 * step & tiles - 1) * TILE;
        // @region tile
        if (lane == 0) {
            expect(barrier, 4 * TILE);
            bulk_copy(to, from, 4 * TILE, barrier);
        }
        wait_for_copy(barrier, step % 2);
        // @end
#pragma unroll 1
        for (int i = 0; i < work; ++i) state = busy(state);
        sum += tile[(step % 4) * 32 + lane];
        __syncwarp();
    }
    out[thread] = state + sum;
}

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    bulk_wait_fixed(const unsigned* table, unsigned* out, int tiles, int steps, int work)
{
    __shared__ __align__(128) unsigned shared[WARPS][TILE];
    __shared__ unsigned long long barriers[WARPS];
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
    const unsigned* const tile = shared[threadIdx.x / 32];
    const unsigned to = place_of(tile), barrier = place_of(barriers + threadIdx.x / 32);
    unsigned state = thread, sum = 0;
    make_barrier(barrier);
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        const unsigned* const from = table + (thread / 32 + 5 * step & tiles - 1) * TILE;
        // @region tile
        if (lane == 0) {
            expect(barrier, 4 * TILE);
            bulk_copy(to, from, 4 * TILE, barrier);
        }
        // @end
#pragma unroll 1
        for (int i = 0; i < work; ++i) state = busy(state);
        // @region tile
        wait_for_copy(barrier, step % 2);
        // @end
        sum += tile[(step % 4) * 32 + lane];
        __syncwarp();
    }
    out[thread] = state + sum;
}
