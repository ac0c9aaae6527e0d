// What tests/data/quick.sm90.ncu-rep is a report of: the first launch of alpha. Recorded by scripts/record_captures.py.
#include <cuda_runtime.h>

__global__ void alpha(float* x, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) x[i] = x[i] * 2 + 1;
}
__global__ void beta(float* x) { x[threadIdx.x] += 1; }

int main() {
  float* x;
  const int n = 1 << 26;
  if (cudaMalloc(&x, n * sizeof(float)) != cudaSuccess) return 1;
  for (int i = 0; i < 4; ++i) alpha<<<528, 256>>>(x, n);
  beta<<<1, 32>>>(x);
  return cudaDeviceSynchronize() != cudaSuccess;
}
