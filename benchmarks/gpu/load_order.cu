// Do loads of one warp return in the order in which they were issued?
// A misses every cache, B hits L1. B alone is fast; B behind A is fast only if it may overtake A.
// Prints cycles from the first issue until each result is there: medians over lines that were never touched before.
// Build: nvcc -O3 -arch=native -o load_order load_order.cu
#include <algorithm>
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

enum { HIT_ALONE, MISS_ALONE, MISS_THEN_HIT, HIT_THEN_MISS, SHARED_BEHIND_MISS, MODES };
static const char* names[] = {"L1 hit alone", "miss alone", "miss, then L1 hit", "L1 hit, then miss", "miss, then shared load"};

template <int MODE>
__global__ void probe(const int* cold, const int* hot, int* first, int* second, int stride) {
  __shared__ int tile[32];
  tile[threadIdx.x] = threadIdx.x;
  __syncthreads();
  int warm, sink = 0;
  asm volatile("ld.global.ca.s32 %0, [%1];" : "=r"(warm) : "l"(hot + threadIdx.x));
  asm volatile("ld.global.ca.s32 %0, [%1];" : "=r"(sink) : "l"(hot + threadIdx.x + (warm & 1)));
  const int* a = cold + (size_t)blockIdx.x * stride + threadIdx.x + (sink & 0);
  const int* b = hot + threadIdx.x + (sink & 0);
  unsigned s = (unsigned)__cvta_generic_to_shared(tile + threadIdx.x);
  int x = 0, y = 0;
  __syncwarp();
  long long t0 = clock64(), t1, t2;
  if (MODE == HIT_ALONE) asm volatile("ld.global.ca.s32 %0, [%1];" : "=r"(y) : "l"(b));
  if (MODE == MISS_ALONE) asm volatile("ld.global.ca.s32 %0, [%1];" : "=r"(x) : "l"(a));
  if (MODE == MISS_THEN_HIT) {
    asm volatile("ld.global.ca.s32 %0, [%1];" : "=r"(x) : "l"(a));
    asm volatile("ld.global.ca.s32 %0, [%1];" : "=r"(y) : "l"(b));
  }
  if (MODE == HIT_THEN_MISS) {
    asm volatile("ld.global.ca.s32 %0, [%1];" : "=r"(y) : "l"(b));
    asm volatile("ld.global.ca.s32 %0, [%1];" : "=r"(x) : "l"(a));
  }
  if (MODE == SHARED_BEHIND_MISS) {
    asm volatile("ld.global.ca.s32 %0, [%1];" : "=r"(x) : "l"(a));
    asm volatile("ld.shared.s32 %0, [%1];" : "=r"(y) : "r"(s));
  }
  // A dependent instruction on y, then the clock; the same on x.
  asm volatile("{.reg .pred p; .reg .s32 q; setp.eq.s32 p, %1, 123456789; @p st.global.s32 [%2], %1; mov.u64 %0, %%clock64;}"
               : "=l"(t1) : "r"(y), "l"(first) : "memory");
  asm volatile("{.reg .pred p; setp.eq.s32 p, %1, 123456789; @p st.global.s32 [%2], %1; mov.u64 %0, %%clock64;}"
               : "=l"(t2) : "r"(x), "l"(second) : "memory");
  if (threadIdx.x == 0) {
    first[blockIdx.x + 1024] = (int)(t1 - t0);
    second[blockIdx.x + 1024] = (int)(t2 - t0);
  }
}

int main() {
  const int blocks = 512, stride = 1 << 16;
  int *cold, *hot, *first, *second;
  cudaMalloc(&cold, (size_t)MODES * blocks * stride * sizeof(int));
  cudaMalloc(&hot, 4096);
  cudaMalloc(&first, (blocks + 1024) * sizeof(int));
  cudaMalloc(&second, (blocks + 1024) * sizeof(int));
  cudaMemset(hot, 0, 4096);
  std::printf("%-24s %14s %14s\n", "issued", "hit is there", "miss is there");
  for (int mode = 0; mode < MODES; ++mode) {
    std::vector<int> f(blocks), s(blocks);
    const int* mine = cold + (size_t)mode * blocks * stride;
    for (int one = 0; one < blocks; ++one) {  // one block at a time: nothing else is in the caches' way
      const int* at = mine + (size_t)one * stride;
      switch (mode) {
        case HIT_ALONE: probe<HIT_ALONE><<<1, 32>>>(at, hot, first, second, stride); break;
        case MISS_ALONE: probe<MISS_ALONE><<<1, 32>>>(at, hot, first, second, stride); break;
        case MISS_THEN_HIT: probe<MISS_THEN_HIT><<<1, 32>>>(at, hot, first, second, stride); break;
        case HIT_THEN_MISS: probe<HIT_THEN_MISS><<<1, 32>>>(at, hot, first, second, stride); break;
        default: probe<SHARED_BEHIND_MISS><<<1, 32>>>(at, hot, first, second, stride);
      }
      cudaMemcpy(&f[one], first + 1024, sizeof(int), cudaMemcpyDeviceToHost);
      cudaMemcpy(&s[one], second + 1024, sizeof(int), cudaMemcpyDeviceToHost);
    }
    std::nth_element(f.begin(), f.begin() + blocks / 2, f.end());
    std::nth_element(s.begin(), s.begin() + blocks / 2, s.end());
    std::printf("%-24s %14d %14d\n", names[mode], f[blocks / 2], s[blocks / 2]);
  }
  cudaError_t e = cudaDeviceSynchronize();
  if (e != cudaSuccess) { std::printf("%s\n", cudaGetErrorString(e)); return 1; }
  return 0;
}
