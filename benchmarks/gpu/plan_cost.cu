// A kernel of any length for benchmarks/gpu/plan_cost.py: loads that miss L1, arithmetic, a barrier, in turns.
// Usage: plan_cost TURNS
#include <cstdio>
#include <cstdlib>

#include <cuda_runtime.h>

constexpr unsigned kWords = 1u << 26;

__global__ void __launch_bounds__(256) mixed(float* data, int turns) {
  __shared__ float shared[256];
  unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
  float x = 0.f;
  for (int turn = 0; turn < turns; ++turn) {
    x += data[at & (kWords - 1)];
    shared[threadIdx.x] = x;
    __syncthreads();
    float y = shared[threadIdx.x ^ 1];
#pragma unroll
    for (int i = 0; i < 16; ++i) y = y * 0.999f + x;
    x = y;
    __syncthreads();
    at += gridDim.x * blockDim.x + 64;
  }
  data[blockIdx.x * blockDim.x + threadIdx.x] = x;
}

int main(int count, char** words) {
  const int turns = count > 1 ? atoi(words[1]) : 1;
  float* data;
  if (cudaMalloc(&data, kWords * sizeof(float)) != cudaSuccess) return fprintf(stderr, "no memory on the GPU\n"), 1;
  cudaMemset(data, 0, kWords * sizeof(float));
  for (int i = 0; i < 2; ++i) mixed<<<528, 256>>>(data, turns);
  if (cudaDeviceSynchronize() != cudaSuccess) return fprintf(stderr, "the kernel failed\n"), 1;
  return 0;
}
