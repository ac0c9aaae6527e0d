// q6_K rung 7: an expanded plane. Weights are expanded once, when they are loaded, to the tiles that stages will hold;
// staging is then copies of 16 bytes. A tile of 128 rows and 64 k is one run of 10 240 bytes, [row tile][k / 64].
#include "q6k.cuh"

extern "C" __global__ void __launch_bounds__(kThreads)
    q6k_expand(const u8* __restrict__ weights, Weights<2>* __restrict__ plane, int rows, int k, int pitch) {
  const Problem p{weights, nullptr, nullptr, 0, rows, k, pitch};
  const int s = blockIdx.x;
  Weights<2>& tile = plane[static_cast<long long>(blockIdx.y) * gridDim.x + s];
  if (!is_wide(weights, pitch)) {
    stage_weights_by_bytes(tile, p, s);
    return;
  }
  const int tid = thread(), line = tid >> 2, piece = tid & 3, j = (s * 4 + piece) & 15;
  const Run run = run_of(j);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const u8* block = p.block(line + i * 64, s >> 2);
    tile.q[place<4>(line + i * 64, piece)] = expand_wide(load_16(block + run.nibbles), load_16(block + run.highs), run);
    tile.scale[line + i * 64][piece] = row_scale(load_d(block), load_sc(block, j));
  }
}

namespace {

constexpr int kBuffers = 3;

__device__ __forceinline__ void copy(Stage<2>& stage, const Weights<2>* plane, const Problem& p, int s) {
  const int tid = thread(), line = tid >> 2, piece = tid & 3;
  const uint4* from = reinterpret_cast<const uint4*>(plane + s);
  uint4* to = reinterpret_cast<uint4*>(&stage.weights);
  // @region expand_b
#pragma unroll
  for (int i = 0; i < 2; ++i)
    copy_async_16(shared_address(to + tid + i * kThreads), from + tid + i * kThreads, true);
  // @end
  // @region stage_a
  copy_async_16(shared_address(&stage.tokens.q[place<4>(line, piece)]), p.a(line, s * 64 + piece * 16), true);
  // @end
  // @region scales
  if (tid < kThreads / 2)
    copy_async_16(shared_address(to + tid + 2 * kThreads), from + tid + 2 * kThreads, true);
  else
    copy_async_4(shared_address(&stage.tokens.scale[tid / kTokens - 2][tid % kTokens]),
                 p.scale_of_a(tid % kTokens, s * 2 + tid / kTokens - 2), true);
  // @end
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads, 3)
    q6k_gemm(const Weights<2>* __restrict__ plane, const s8* __restrict__ a_q, const float* __restrict__ a_scale,
             float* __restrict__ out, int tokens, int rows, int k) {
  const Problem p{nullptr, a_q, a_scale, tokens, rows, k, 0};
  __shared__ Stage<2> buffers[kBuffers];
  const int stages = k / 64;
  plane += static_cast<long long>(blockIdx.y) * stages;

  float acc[2][4][4] = {};
  copy(buffers[0], plane, p, 0);
  commit_copies();
  copy(buffers[1], plane, p, 1);
  commit_copies();
#pragma unroll 1
  for (int s = 0, now = 0; s < stages; ++s) {
    wait_copies<1>();
    __syncthreads();
    const int free = now == 0 ? kBuffers - 1 : now - 1;
    if (s + 2 < stages) copy(buffers[free], plane, p, s + 2);
    commit_copies();
    multiply(buffers[now].weights, buffers[now].tokens, acc);
    now = now + 1 == kBuffers ? 0 : now + 1;
  }
  store(acc, p, out);
}
