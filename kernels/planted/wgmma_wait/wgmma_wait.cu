// A warpgroup matrix product that is waited for at once, before work that does not need it (sm_90a).
#include "../busy.cuh"

#define ROWS 64
#define COLUMNS 256
#define DEPTH 32
// The sums of a thread: ROWS * COLUMNS over the 128 threads of a warpgroup.
#define SUMS 128

// A tile without swizzling: core matrices of 8 x 16 bytes one after another, two to a depth. All values of an operand
// are the same here, so that no result depends on where one of them lies.
__device__ __forceinline__ unsigned long long tile_at(const void* shared)
{
    const unsigned long long place = __cvta_generic_to_shared(shared);
    unsigned long long tile = (place & 0x3ffff) >> 4 | 128ull >> 4 << 16 | 256ull >> 4 << 32;
    // Else the compiler works it out again in every step.
    asm volatile("" : "+l"(tile));
    return tile;
}

#define FOUR(n) "+r"(sum[n]), "+r"(sum[n + 1]), "+r"(sum[n + 2]), "+r"(sum[n + 3])
#define SIXTEEN(n) FOUR(n), FOUR(n + 4), FOUR(n + 8), FOUR(n + 12)
#define PRODUCT                                                                                    \
    "wgmma.mma_async.sync.aligned.m64n256k32.s32.s8.s8 "                                           \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                      \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "             \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "             \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "             \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "             \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "             \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, %128, %129, 1;\n"

// Twice sum += left * right: 256 cycles of the tensor cores.
__device__ __forceinline__ void multiply(unsigned (&sum)[SUMS], unsigned long long left, unsigned long long right)
{
    asm volatile("wgmma.fence.sync.aligned;\n" PRODUCT PRODUCT
                 : SIXTEEN(0), SIXTEEN(16), SIXTEEN(32), SIXTEEN(48), SIXTEEN(64), SIXTEEN(80), SIXTEEN(96),
                   SIXTEEN(112)
                 : "l"(left), "l"(right)
                 : "memory");
}

__device__ __forceinline__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

__device__ __forceinline__ void wait_for_products() { asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); }

// Fills both operands and makes them visible to the tensor cores.
__device__ __forceinline__ void fill(unsigned char* left, unsigned char* right, unsigned a, unsigned b)
{
    for (unsigned i = threadIdx.x; i < ROWS * DEPTH; i += blockDim.x) left[i] = a;
    for (unsigned i = threadIdx.x; i < COLUMNS * DEPTH; i += blockDim.x) right[i] = b;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
}

__device__ __forceinline__ unsigned total_of(const unsigned (&sum)[SUMS])
{
    unsigned total = 0;
    for (int i = 0; i < SUMS; ++i) total += sum[i];
    return total;
}

// The product stands in a branch of its own, and its fence belongs to it: ptxas gives a wgmma no line but that of the
// instruction before it, which must therefore not be one of the loops.
extern "C" __global__ void __launch_bounds__(128) wgmma_wait_guilty(unsigned* out, int steps, int work)
{
    __shared__ __align__(128) unsigned char a[ROWS * DEPTH], b[COLUMNS * DEPTH];
    fill(a, b, blockIdx.x % 5 + 1, 3);
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned long long left = tile_at(a), right = tile_at(b);
    unsigned state = thread, sum[SUMS] = {};
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
#pragma unroll 1
        for (int i = 0; i < work; ++i) {
            state = busy(state);
            if (i == 0) {
                // @region product
                multiply(sum, left, right);
                commit();
                wait_for_products();
                // @end
            }
        }
    }
    out[thread] = state + total_of(sum);
}

extern "C" __global__ void __launch_bounds__(128) wgmma_wait_fixed(unsigned* out, int steps, int work)
{
    __shared__ __align__(128) unsigned char a[ROWS * DEPTH], b[COLUMNS * DEPTH];
    fill(a, b, blockIdx.x % 5 + 1, 3);
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned long long left = tile_at(a), right = tile_at(b);
    unsigned state = thread, sum[SUMS] = {};
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
#pragma unroll 1
        for (int i = 0; i < work; ++i) {
            state = busy(state);
            if (i == 0) {
                // @region product
                multiply(sum, left, right);
                commit();
                // @end
            }
        }
        // @region product
        wait_for_products();
        // @end
    }
    out[thread] = state + total_of(sum);
}
