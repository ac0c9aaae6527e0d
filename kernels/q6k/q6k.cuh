// What the rungs of the q6_K ladder share: the tile, the format, one stage's multiplication, the store.
//
// C[token][row] = sum over k of W[row][k] * A[token][k]. A block of 256 threads computes 64 tokens x 128 rows, a warp
// of it 32 x 32. Weights are expanded to centred int8 on their way to shared memory; each 16 of k is one m16n8k16 mma
// (rows are its M, tokens its N) and one rescale in float.
#pragma once
#include "../formats/ptx.cuh"

typedef unsigned char u8;
typedef signed char s8;
typedef unsigned short u16;

namespace {

constexpr int kTokens = 64, kRows = 128, kThreads = 256;
// A q6_K block: 256 weights in 210 bytes, `pitch` bytes from one block to the next.
constexpr int kHighs = 128, kScales = 192, kD = 208;
// What a kernel says it did.
constexpr unsigned kByteArm = 1, kWideArm = 2;

// A stage is CHUNKS * 32 of k. Its rows are 2 * CHUNKS pieces of 16 bytes, one for each scale of a row.
template <int CHUNKS>
struct Weights {
  uint4 q[kRows * 2 * CHUNKS];
  float scale[kRows][2 * CHUNKS];
};
template <int CHUNKS>
struct Tokens {
  uint4 q[kTokens * 2 * CHUNKS];
  float scale[CHUNKS][kTokens];
};
template <int CHUNKS>
struct Stage {
  Weights<CHUNKS> weights;
  Tokens<CHUNKS> tokens;
};

// Where a piece of a row lies: 8 rows at one piece hit all 32 banks, and so do the pieces of neighbouring rows.
template <int PIECES>
__device__ __forceinline__ int place(int row, int piece) {
  return row * PIECES + (piece ^ ((row / (8 / PIECES)) & (PIECES - 1)));
}

// The 16 weights that share scale `j` (0..15) of a block: 16 bytes with their nibbles, 16 bytes with their high bits.
struct Run {
  int nibbles, highs, low_shift, high_shift;
};
__device__ __forceinline__ Run run_of(int j) {
  const int half = j >> 3, quarter = (j >> 1) & 3, odd = j & 1;
  return {half * 64 + (quarter & 1) * 32 + odd * 16, kHighs + half * 32 + odd * 16, (quarter >> 1) * 4, quarter * 2};
}

// Their first or last 8 by the definition, from 16 single bytes.
__device__ __forceinline__ uint2 expand_bytes(const u8* block, Run run, int last) {
  const u8 *nibbles = block + run.nibbles + last * 8, *highs = block + run.highs + last * 8;
  unsigned word[2];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const unsigned low = __ldg(nibbles + i), high = __ldg(highs + i);
    const int q = ((low >> run.low_shift & 15) | (high >> run.high_shift & 3) << 4) - 32;
    const unsigned byte = static_cast<unsigned>(q & 255) << (8 * (i & 3));
    word[i / 4] = i & 3 ? word[i / 4] | byte : byte;
  }
  return make_uint2(word[0], word[1]);
}

// The same in closed form, four weights a word: 0x60 + q has no carry (q < 64), and (0x60 + q) ^ 0x80 is q - 32.
__device__ __forceinline__ unsigned expand_word(unsigned nibbles, unsigned highs, Run run) {
  const unsigned low = nibbles >> run.low_shift & 0x0f0f0f0fu, high = highs >> run.high_shift & 0x03030303u;
  return ((low | 0x60606060u) + high * 16) ^ 0x80808080u;
}
__device__ __forceinline__ uint4 expand_wide(uint4 nibbles, uint4 highs, Run run) {
  return make_uint4(expand_word(nibbles.x, highs.x, run), expand_word(nibbles.y, highs.y, run),
                    expand_word(nibbles.z, highs.z, run), expand_word(nibbles.w, highs.w, run));
}
__device__ __forceinline__ uint4 load_16(const void* p) { return __ldg(static_cast<const uint4*>(p)); }

// Says once which arm ran.
__device__ __forceinline__ void testify(unsigned* witness, unsigned arm) {
  if (witness && (threadIdx.x | blockIdx.x | blockIdx.y) == 0) *witness = arm;
}

// True when every run of 16 bytes can be read at once.
__device__ __forceinline__ bool is_wide(const u8* weights, int pitch) {
  return (pitch & 15) == 0 && (reinterpret_cast<unsigned long long>(weights) & 15) == 0;
}

// One scale of a row: d (f16) times sc (int8).
__device__ __forceinline__ float row_scale(unsigned d_bits, int sc) {
  return __fmul_rn(half_to_float(d_bits), static_cast<float>(sc));
}
__device__ __forceinline__ unsigned load_d(const u8* block) {
  return __ldg(reinterpret_cast<const u16*>(block + kD));
}
__device__ __forceinline__ int load_sc(const u8* block, int j) {
  return __ldg(reinterpret_cast<const s8*>(block + kScales + j));
}
// The four scales of 64 k, from one word.
__device__ __forceinline__ float4 row_scales(unsigned d_bits, unsigned sc) {
  return make_float4(row_scale(d_bits, static_cast<s8>(sc)), row_scale(d_bits, static_cast<s8>(sc >> 8)),
                     row_scale(d_bits, static_cast<s8>(sc >> 16)), row_scale(d_bits, static_cast<s8>(sc >> 24)));
}

// The problem, and the tile that this block computes. What lies off it is read as its last row or token again.
struct Problem {
  const u8* __restrict__ weights;
  const s8* __restrict__ a_q;
  const float* __restrict__ a_scale;
  int tokens, rows, k, pitch;

  __device__ __forceinline__ int token0() const { return blockIdx.x * kTokens; }
  __device__ __forceinline__ int row0() const { return blockIdx.y * kRows; }
  __device__ __forceinline__ const u8* block(int line, int index) const {
    return weights + static_cast<long long>(min(row0() + line, rows - 1) * (k / 256) + index) * pitch;
  }
  __device__ __forceinline__ const s8* a(int line, int at) const {
    return a_q + static_cast<long long>(min(token0() + line, tokens - 1)) * k + at;
  }
  __device__ __forceinline__ const float* scale_of_a(int line, int chunk) const {
    return a_scale + static_cast<long long>(chunk) * tokens + min(token0() + line, tokens - 1);
  }
};

// The thread's number, so that what follows from it is worked out where it is used: keeping it costs a resident block.
__device__ __forceinline__ int thread() {
  int tid;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(tid));
  __builtin_assume(tid >= 0 && tid < kThreads);
  return tid;
}

// Stages weights from single bytes, 16 of a row a thread. Not unrolled: with more loads in flight registers spill.
template <int CHUNKS>
__device__ __forceinline__ void stage_weights_by_bytes(Weights<CHUNKS>& weights, const Problem& p, int s) {
  constexpr int kPieces = 2 * CHUNKS;
  const int tid = thread(), piece = tid % kPieces, j = (s * kPieces + piece) & 15;
  // @region expand_b
#pragma unroll 1
  for (int i = 0; i < kRows * kPieces / kThreads * 2; ++i) {
    const int line = tid / kPieces + i / 2 * (kThreads / kPieces);
    uint2* to = reinterpret_cast<uint2*>(&weights.q[place<kPieces>(line, piece)]);
    to[i & 1] = expand_bytes(p.block(line, s * kPieces / 16), run_of(j), i & 1);
  }
  // @end
  // @region scales
#pragma unroll
  for (int line = tid / kPieces; line < kRows; line += kThreads / kPieces) {
    const u8* block = p.block(line, s * kPieces / 16);
    weights.scale[line][piece] = row_scale(load_d(block), load_sc(block, j));
  }
  // @end
}

// Stages tokens, 16 values and one scale a thread, in two steps so that other loads can be under way between them.
template <int CHUNKS>
struct TokenPiece {
  uint4 q{};
  float scale = 0;
  static constexpr int kPieces = 2 * CHUNKS, kHolders = kTokens * kPieces, kScaled = kTokens * CHUNKS;

  __device__ __forceinline__ void load(const Problem& p, int s) {
    const int tid = thread();
    // @region stage_a
    if (tid < kHolders) q = load_16(p.a(tid / kPieces, s * CHUNKS * 32 + tid % kPieces * 16));
    // @end
    // @region scales
    if (tid < kScaled) scale = __ldg(p.scale_of_a(tid % kTokens, s * CHUNKS + tid / kTokens));
    // @end
  }
  __device__ __forceinline__ void store(Tokens<CHUNKS>& tokens) const {
    const int tid = thread();
    // @region stage_a
    if (tid < kHolders) tokens.q[place<kPieces>(tid / kPieces, tid % kPieces)] = q;
    // @end
    // @region scales
    if (tid < kScaled) tokens.scale[tid / kTokens][tid % kTokens] = scale;
    // @end
  }
};

template <int CHUNKS>
__device__ __forceinline__ void stage_by_bytes(Stage<CHUNKS>& stage, const Problem& p, int s) {
  stage_weights_by_bytes(stage.weights, p, s);
  TokenPiece<CHUNKS> piece;
  piece.load(p, s);
  piece.store(stage.tokens);
}

// dot (16x8) = a (16x16) * b (16x8), all of signed bytes.
__device__ __forceinline__ void mma_k16(int (&dot)[4], const unsigned (&a)[2], unsigned b) {
  asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%7,%7,%7,%7};"
      : "=r"(dot[0]), "=r"(dot[1]), "=r"(dot[2]), "=r"(dot[3])
      : "r"(a[0]), "r"(a[1]), "r"(b), "r"(0));
}

// The fragments' geometry: a thread's element i of tile (m, n) is row m * 16 + group + (i & 2) * 4 and token
// n * 8 + quad * 2 + (i & 1) of its warp.
struct Lane {
  int group, quad, row, token;  // row and token: where the warp's 32 x 32 begin
};
__device__ __forceinline__ Lane lane_of(int tid) {
  return {(tid & 31) >> 2, tid & 3, (tid >> 5 & 3) * 32, (tid >> 7) * 32};
}

// acc += one stage, 16 of k after 16 of k: acc = fma(dot, w_scale * t_scale, acc), which no rung may reorder.
template <int CHUNKS>
__device__ __forceinline__ void multiply(const Weights<CHUNKS>& weights, const Tokens<CHUNKS>& tokens,
                                         float (&acc)[2][4][4]) {
  const Lane lane = lane_of(thread());
  const unsigned* w = reinterpret_cast<const unsigned*>(weights.q) + lane.quad;
  const unsigned* t = reinterpret_cast<const unsigned*>(tokens.q) + lane.quad;
  // Not unrolled: two chunks mixed need more registers than three resident blocks leave.
#pragma unroll 1
  for (int chunk = 0; chunk < CHUNKS; ++chunk) {
    // @region scales
    float2 w_scale[2][2], t_scale[4];
#pragma unroll
    for (int r = 0; r < 4; ++r)
      w_scale[r / 2][r & 1] =
          *reinterpret_cast<const float2*>(&weights.scale[lane.row + r * 8 + lane.group][chunk * 2]);
#pragma unroll
    for (int n = 0; n < 4; ++n)
      t_scale[n] = *reinterpret_cast<const float2*>(&tokens.scale[chunk][lane.token + n * 8 + lane.quad * 2]);
    // @end
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int piece = chunk * 2 + half;
      // @region mma
      unsigned a[2][2], b[4];
#pragma unroll
      for (int r = 0; r < 4; ++r)
        a[r / 2][r & 1] = w[4 * place<2 * CHUNKS>(lane.row + r * 8 + lane.group, piece)];
#pragma unroll
      for (int n = 0; n < 4; ++n) b[n] = t[4 * place<2 * CHUNKS>(lane.token + n * 8 + lane.group, piece)];
      // @end
#pragma unroll
      for (int m = 0; m < 2; ++m)
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          int dot[4];
          // @region mma
          mma_k16(dot, a[m], b[n]);
          // @end
          // @region scales
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const float2 both = w_scale[m][i / 2];
            const float scale = __fmul_rn(half ? both.y : both.x, i & 1 ? t_scale[n].y : t_scale[n].x);
            acc[m][n][i] = __fmaf_rn(__int2float_rn(dot[i]), scale, acc[m][n][i]);
          }
          // @end
        }
    }
  }
}

// Writes what lies inside of C; rows are contiguous.
__device__ __forceinline__ void store(const float (&acc)[2][4][4], const Problem& p, float* out) {
  const Lane lane = lane_of(threadIdx.x);
  // @region epilogue
#pragma unroll
  for (int n = 0; n < 4; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        const int row = p.row0() + lane.row + m * 16 + (i & 2) * 4 + lane.group;
        const int token = p.token0() + lane.token + n * 8 + lane.quad * 2 + (i & 1);
        if (row < p.rows && token < p.tokens) out[static_cast<long long>(token) * p.rows + row] = acc[m][n][i];
      }
  // @end
}

}  // namespace
