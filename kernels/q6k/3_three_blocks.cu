// q6_K rung 3: a third resident block, by bounding the registers.
#include "q6k.cuh"

extern "C" __global__ void __launch_bounds__(kThreads, 3)
    q6k_gemm(const u8* __restrict__ weights, const s8* __restrict__ a_q, const float* __restrict__ a_scale,
             float* __restrict__ out, int tokens, int rows, int k, int pitch, unsigned* __restrict__ witness) {
  const Problem p{weights, a_q, a_scale, tokens, rows, k, pitch};
  __shared__ Stage<2> buffers[2];
  testify(witness, kByteArm);

  float acc[2][4][4] = {};
  const int stages = k / 64;
  stage_by_bytes(buffers[0], p, 0);
  __syncthreads();
#pragma unroll 1
  for (int s = 0; s < stages; ++s) {
    if (s + 1 < stages) stage_by_bytes(buffers[(s + 1) & 1], p, s + 1);
    multiply(buffers[s & 1].weights, buffers[s & 1].tokens, acc);
    __syncthreads();
  }
  store(acc, p, out);
}
