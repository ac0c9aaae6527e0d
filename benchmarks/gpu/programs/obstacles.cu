// Programs that stand in a profiler's way. Usage: obstacles fail | child | spin | tiny
#include <cstdio>
#include <cstring>
#include <unistd.h>

#include <cuda_runtime.h>

__global__ void tiny(float* x) { x[threadIdx.x] += 1.f; }
__global__ void wait_for_the_host(volatile int* flag) { while (!*flag) {} }

int main(int count, char** words) {
  const char* what = count > 1 ? words[1] : "tiny";
  if (!strcmp(what, "child")) {
    if (!fork()) execl(words[0], words[0], "tiny", static_cast<char*>(nullptr));
    sleep(8);
    return 0;
  }
  float* x;
  if (cudaMalloc(&x, 128) != cudaSuccess) return fprintf(stderr, "obstacles: no GPU to work on\n"), 3;
  tiny<<<1, 32>>>(x);
  cudaDeviceSynchronize();
  if (!strcmp(what, "fail")) return fprintf(stderr, "obstacles: the input file is damaged\n"), 7;
  if (!strcmp(what, "spin")) {
    int *flag, *seen;
    cudaHostAlloc(reinterpret_cast<void**>(&flag), sizeof(int), cudaHostAllocMapped);
    *flag = 0;
    cudaHostGetDevicePointer(reinterpret_cast<void**>(&seen), flag, 0);
    wait_for_the_host<<<1, 1>>>(seen);
    sleep(1);
    *flag = 1;
  }
  return cudaDeviceSynchronize() != cudaSuccess;
}
