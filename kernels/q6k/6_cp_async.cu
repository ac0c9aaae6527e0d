// q6_K rung 6: cp.async. Raw weights and activations are copied to shared memory while earlier ones are multiplied.
//
// A copy brings 128 k: its raw bytes serve two stages of 64 k, the lower nibbles and the upper ones. Copies of weights
// and of tokens start in turn, one group a stage, and are awaited two stages later: one may be under way at a barrier.
#include "q6k.cuh"

namespace {

// 128 k as they are stored.
struct Raw {
  uint4 nibbles[kRows][4], highs[kRows][2];
  unsigned sc[2][kRows], d[kRows];
};
struct Buffers {
  Raw raw[2];
  Tokens<2> tokens[2][2];
  Weights<2> weights[2];
};
static_assert(sizeof(Buffers) == 66560 && sizeof(Buffers) >= 2 * sizeof(Stage<2>), "what spec.py asks for");

__device__ __forceinline__ void copy_weights(Raw& raw, const Problem& p, int m) {
  const int tid = thread(), line = tid >> 2, piece = tid & 3, row = tid >> 1, odd = tid & 1, half = m & 1;
  // @region expand_b
#pragma unroll
  for (int i = 0; i < 2; ++i)
    copy_async_16(shared_address(&raw.nibbles[line + i * 64][piece]),
                  p.block(line + i * 64, m >> 1) + half * 64 + piece * 16, true);
  const u8* block = p.block(row, m >> 1);
  copy_async_16(shared_address(&raw.highs[row][odd]), block + kHighs + half * 32 + odd * 16, true);
  // @end
  // @region scales
  copy_async_4(shared_address(&raw.sc[odd][row]), block + kScales + half * 8 + odd * 4, true);
  if (odd == 0) copy_async_4(shared_address(&raw.d[row]), block + kD, true);
  // @end
}

__device__ __forceinline__ void copy_tokens(Tokens<2> (&tokens)[2], const Problem& p, int m) {
  const int tid = thread(), line = tid >> 2, piece = tid & 3, chunk = tid / kTokens;
  // @region stage_a
#pragma unroll
  for (int i = 0; i < 2; ++i)
    copy_async_16(shared_address(&tokens[i].q[place<4>(line, piece)]), p.a(line, m * 128 + i * 64 + piece * 16), true);
  // @end
  // @region scales
  copy_async_4(shared_address(&tokens[chunk >> 1].scale[chunk & 1][tid % kTokens]),
               p.scale_of_a(tid % kTokens, m * 4 + chunk), true);
  // @end
}

// Expands stage s of 64 k from shared memory.
__device__ __forceinline__ void expand(Weights<2>& weights, const Raw& raw, int s) {
  const int tid = thread(), line = tid >> 2, piece = tid & 3, row = tid - kRows;
  // @region expand_b
  const Run run = run_of((s * 4 + piece) & 15);
#pragma unroll
  for (int i = 0; i < 2; ++i)
    weights.q[place<4>(line + i * 64, piece)] =
        expand_wide(raw.nibbles[line + i * 64][piece], raw.highs[line + i * 64][piece & 1], run);
  // @end
  // @region scales
  if (row >= 0) *reinterpret_cast<float4*>(weights.scale[row]) = row_scales(raw.d[row], raw.sc[s & 1][row]);
  // @end
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads, 3)
    q6k_gemm(const u8* __restrict__ weights, const s8* __restrict__ a_q, const float* __restrict__ a_scale,
             float* __restrict__ out, int tokens, int rows, int k, int pitch, unsigned* __restrict__ witness) {
  const Problem p{weights, a_q, a_scale, tokens, rows, k, pitch};
  extern __shared__ uint4 memory[];
  const bool wide = is_wide(weights, pitch);
  testify(witness, wide ? kWideArm : kByteArm);

  float acc[2][4][4] = {};
  if (wide) {
    Buffers& b = *reinterpret_cast<Buffers*>(memory);
    const int stages = k / 64;
    copy_weights(b.raw[0], p, 0);
    commit_copies();
    copy_tokens(b.tokens[0], p, 0);
    commit_copies();
    copy_weights(b.raw[1], p, 1);
    commit_copies();
    wait_copies<2>();
    __syncthreads();
    expand(b.weights[0], b.raw[0], 0);
#pragma unroll 1
    for (int s = 0; s < stages; ++s) {
      const int m = s >> 1;
      wait_copies<1>();
      __syncthreads();
      if (s & 1) {
        if (m + 2 < stages / 2) copy_weights(b.raw[m & 1], p, m + 2);
      } else {
        if (m + 1 < stages / 2) copy_tokens(b.tokens[(m + 1) & 1], p, m + 1);
      }
      commit_copies();
      if (s + 1 < stages) expand(b.weights[(s + 1) & 1], b.raw[(s + 1) >> 1 & 1], s + 1);
      multiply(b.weights[s & 1], b.tokens[m & 1][s & 1], acc);
    }
  } else {
    Stage<2>* buffers = reinterpret_cast<Stage<2>*>(memory);
    const int stages = k / 64;
    stage_by_bytes(buffers[0], p, 0);
    __syncthreads();
#pragma unroll 1
    for (int s = 0; s < stages; ++s) {
      if (s + 1 < stages) stage_by_bytes(buffers[(s + 1) & 1], p, s + 1);
      multiply(buffers[s & 1].weights, buffers[s & 1].tokens, acc);
      __syncthreads();
    }
  }
  store(acc, p, out);
}
