// q6_K rung 5: wide scales. One 4-byte load brings the four scales that a row needs in a stage, and d comes once.
#include "q6k.cuh"

extern "C" __global__ void __launch_bounds__(kThreads, 3)
    q6k_gemm(const u8* __restrict__ weights, const s8* __restrict__ a_q, const float* __restrict__ a_scale,
             float* __restrict__ out, int tokens, int rows, int k, int pitch, unsigned* __restrict__ witness) {
  const Problem p{weights, a_q, a_scale, tokens, rows, k, pitch};
  __shared__ Stage<2> buffers[2];
  const bool wide = is_wide(weights, pitch);
  testify(witness, wide ? kWideArm : kByteArm);

  auto fill = [&](Stage<2>& stage, int s) {
    if (wide) {
      // Every load of the stage is on its way before the first is used.
      const int tid = thread(), line = tid >> 2, piece = tid & 3, j = (s * 4 + piece) & 15;
      // @region expand_b
      const Run run = run_of(j);
      uint4 nibbles[2], highs[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const u8* block = p.block(line + i * 64, s >> 2);
        nibbles[i] = load_16(block + run.nibbles);
        highs[i] = load_16(block + run.highs);
      }
      // @end
      // @region scales
      const int row = tid - kRows;
      unsigned d = 0, sc = 0;
      if (row >= 0) {
        const u8* block = p.block(row, s >> 2);
        sc = __ldg(reinterpret_cast<const unsigned*>(block + kScales) + (s & 3));
        d = load_d(block);
      }
      // @end
      TokenPiece<2> tokens_piece;
      tokens_piece.load(p, s);
      // @region expand_b
#pragma unroll
      for (int i = 0; i < 2; ++i)
        stage.weights.q[place<4>(line + i * 64, piece)] = expand_wide(nibbles[i], highs[i], run);
      // @end
      // @region scales
      if (row >= 0) *reinterpret_cast<float4*>(stage.weights.scale[row]) = row_scales(d, sc);
      // @end
      tokens_piece.store(stage.tokens);
    } else {
      stage_by_bytes(stage, p, s);
    }
  };

  float acc[2][4][4] = {};
  const int stages = k / 64;
  fill(buffers[0], 0);
  __syncthreads();
#pragma unroll 1
  for (int s = 0; s < stages; ++s) {
    if (s + 1 < stages) fill(buffers[(s + 1) & 1], s + 1);
    multiply(buffers[s & 1].weights, buffers[s & 1].tokens, acc);
    __syncthreads();
  }
  store(acc, p, out);
}
