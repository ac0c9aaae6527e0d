// May a load of a warp overtake an earlier one of the same warp?
// A misses every cache; B was loaded before and hits L1. B alone is fast; B issued after A is fast only if it overtakes.
// Prints cycles from the first issue until each result is there: medians over lines that were never touched before.
// The second address depends on a clock read after the first load, so that the compiler cannot swap them; look at the
// SASS before you trust a number (nvdisasm -c): in "miss, then hit" the load of `cold` must come first.
// Build: nvcc -O3 -arch=native -o load_order load_order.cu
#include <algorithm>
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

enum { HIT_ALONE, MISS_ALONE, MISS_THEN_HIT, HIT_THEN_MISS, MISS_THEN_SHARED, MODES };
static const char* names[] = {"hit alone", "miss alone", "miss, then hit", "hit, then miss", "miss, then shared load"};
constexpr unsigned NEVER = 0x7ffffff1u;

__device__ __forceinline__ int load(const int* p) {
  int v;
  asm volatile("ld.global.s32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ unsigned now() {
  unsigned t;
  asm volatile("mov.u32 %0, %%clock;" : "=r"(t)::"memory");
  return t;
}
// Waits for a value, then reads the clock.
__device__ __forceinline__ unsigned arrival(int v, int* sink) {
  if (v == (int)NEVER) *sink = v;
  return now();
}

template <int MODE>
__global__ void probe(const int* cold, const int* hot, int* out) {
  __shared__ int tile[64];
  tile[threadIdx.x] = threadIdx.x;
  __syncthreads();
  const int* b = hot + threadIdx.x;
  int warm = load(b);
  if (warm == (int)NEVER) out[7] = warm;
  const int* a = cold + threadIdx.x + (warm == (int)NEVER);
  b += (warm == (int)NEVER);
  __syncwarp();
  int x = 0, y = 0;
  unsigned t0 = now();
  if (MODE == MISS_ALONE || MODE == MISS_THEN_HIT || MODE == MISS_THEN_SHARED) x = load(a);
  if (MODE == HIT_ALONE || MODE == HIT_THEN_MISS) y = load(b);
  unsigned mid = now();
  int shift = mid == NEVER;
  if (MODE == MISS_THEN_HIT) y = load(b + shift);
  if (MODE == HIT_THEN_MISS) x = load(a + shift);
  if (MODE == MISS_THEN_SHARED) y = ((volatile int*)tile)[threadIdx.x + shift];
  unsigned t1 = arrival(y, out + 5), t2 = arrival(x, out + 6);
  if (threadIdx.x == 0) {
    out[0] = (int)(t1 - t0);
    out[1] = (int)(t2 - t0);
  }
}

int main() {
  const int runs = 512;
  const size_t stride = 1 << 16;
  int *cold, *hot, *out;
  cudaMalloc(&cold, (size_t)MODES * runs * stride * sizeof(int));
  cudaMalloc(&hot, 4096);
  cudaMalloc(&out, 64);
  cudaMemset(hot, 0, 4096);
  std::printf("%-24s %14s %14s\n", "issued", "hit is there", "miss is there");
  for (int mode = 0; mode < MODES; ++mode) {
    std::vector<int> hits(runs), misses(runs);
    for (int one = 0; one < runs; ++one) {  // one warp at a time: nothing else is in the way
      const int* at = cold + ((size_t)mode * runs + one) * stride;
      switch (mode) {
        case HIT_ALONE: probe<HIT_ALONE><<<1, 32>>>(at, hot, out); break;
        case MISS_ALONE: probe<MISS_ALONE><<<1, 32>>>(at, hot, out); break;
        case MISS_THEN_HIT: probe<MISS_THEN_HIT><<<1, 32>>>(at, hot, out); break;
        case HIT_THEN_MISS: probe<HIT_THEN_MISS><<<1, 32>>>(at, hot, out); break;
        default: probe<MISS_THEN_SHARED><<<1, 32>>>(at, hot, out);
      }
      int both[2];
      cudaMemcpy(both, out, sizeof both, cudaMemcpyDeviceToHost);
      hits[one] = both[0];
      misses[one] = both[1];
    }
    std::nth_element(hits.begin(), hits.begin() + runs / 2, hits.end());
    std::nth_element(misses.begin(), misses.begin() + runs / 2, misses.end());
    std::printf("%-24s %14d %14d\n", names[mode], hits[runs / 2], misses[runs / 2]);
  }
  cudaError_t e = cudaDeviceSynchronize();
  if (e != cudaSuccess) {
    std::printf("%s\n", cudaGetErrorString(e));
    return 1;
  }
  return 0;
}
