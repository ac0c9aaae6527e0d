// q6_K rung 1: raw bytes. 16 weights come from 32 single-byte loads; one shared buffer of 32 k.
#include "q6k.cuh"

extern "C" __global__ void __launch_bounds__(kThreads, 2)
    q6k_gemm(const u8* __restrict__ weights, const s8* __restrict__ a_q, const float* __restrict__ a_scale,
             float* __restrict__ out, int tokens, int rows, int k, int pitch, unsigned* __restrict__ witness) {
  const Problem p{weights, a_q, a_scale, tokens, rows, k, pitch};
  __shared__ Stage<1> stage;
  testify(witness, kByteArm);

  float acc[2][4][4] = {};
#pragma unroll 1
  for (int s = 0; s < k / 32; ++s) {
    stage_by_bytes(stage, p, s);
    __syncthreads();
    multiply(stage.weights, stage.tokens, acc);
    __syncthreads();
  }
  store(acc, p, out);
}
