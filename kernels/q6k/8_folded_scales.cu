// q6_K rung 8: the scale is folded into the weight, so that one rescale serves 32 k, not 16.
//
// (q - 32) * sc needs 13 bits: it goes to shared memory as two bytes, high (signed) and low (unsigned), each for an
// m16n8k32 mma; 256 * high + low is the exact int32 sum of 32 k. That sum is multiplied by the activation's scale; the
// block's d waits until its 256 weights are done. Tile: 64 rows x TOKENS tokens (128, two blocks a multiprocessor, or 192,
// one), whichever leaves the smaller last wave; warps of 32 x 32, ldmatrix on swizzled rows.
#include "../formats/ptx.cuh"

typedef unsigned char u8;
typedef unsigned short u16;

#ifndef TOKENS
#define TOKENS 128
#endif
#define NAME_OF(tokens) q6k_gemm_folded_##tokens
#define NAME(tokens) NAME_OF(tokens)

namespace {

constexpr int kRows = 64, kTokens = TOKENS, kThreads = 2 * kTokens, kStageK = 64;
constexpr int kBlocks = kTokens > 128 ? 1 : 2;  // resident on a multiprocessor
constexpr int kExpanders = 4 * kRows;           // threads that stage weights
constexpr int kAheadA = 3;              // stages of activations in flight
constexpr int kBuffersA = kAheadA + 1;  // one more is being read

struct Shared {
  uint4 high[2][kRows * kStageK / 16];
  uint4 low[2][kRows * kStageK / 16];
  uint4 tokens[kBuffersA][kTokens * kStageK / 16];
  float token_scale[kBuffersA][2][kTokens];
  float d[2][kRows];
};

// spec.py asks for as much.
static_assert(sizeof(Shared) == 4 * kRows * kStageK + kBuffersA * kTokens * (kStageK + 8) + 8 * kRows, "shared memory");

// Rows of 64 bytes: 16-byte piece `piece` of row `row`, placed so that 8 rows at one piece hit 8 different bank groups.
__device__ __forceinline__ int swizzle(int row, int piece) { return row * 4 + (piece ^ ((row >> 1) & 3)); }

// What a thread holds of 128 weights' rows: 16 nibble bytes, 16 bytes of high bits, 8 scales.
struct Raw {
  uint4 nibbles, highs;
  uint2 scales;
};

__device__ __forceinline__ unsigned load_pair(const u8* p) { return *reinterpret_cast<const u16*>(p); }

__device__ __forceinline__ unsigned load_word_narrow(const u8* p) { return load_pair(p) | load_pair(p + 2) << 16; }

template <bool WIDE>
__device__ __forceinline__ uint4 load_16(const u8* p) {
  if (WIDE) return __ldg(reinterpret_cast<const uint4*>(p));
  return make_uint4(load_word_narrow(p), load_word_narrow(p + 4), load_word_narrow(p + 8), load_word_narrow(p + 12));
}

template <bool WIDE>
__device__ __forceinline__ Raw load_raw(const u8* block, int half, int part) {
  Raw raw;
  raw.nibbles = load_16<WIDE>(block + half * 64 + part * 16);
  raw.highs = load_16<WIDE>(block + 128 + half * 32 + (part & 1) * 16);
  const u8* scales = block + 192 + half * 8;
  raw.scales = WIDE ? __ldg(reinterpret_cast<const uint2*>(scales))
                    : make_uint2(load_word_narrow(scales), load_word_narrow(scales + 4));
  return raw;
}

// Four weights: q = low | high << 4 (bytes), then q * sc - 32 * sc in 16-bit lanes. `offset` keeps the lower lane of a pair
// from borrowing from the upper one; the xor takes it out again.
template <int UPPER>
__device__ __forceinline__ void fold4(unsigned nibbles, unsigned highs, int shift, int scale, int offset, unsigned& high,
                                      unsigned& low) {
  const unsigned q = ((nibbles >> (4 * UPPER)) & 0x0f0f0f0fu) | (((highs >> shift) & 0x03030303u) << 4);
  const unsigned a = __byte_perm(q, 0, 0x4140) * scale + offset;  // weights 0 and 1
  const unsigned b = __byte_perm(q, 0, 0x4342) * scale + offset;  // weights 2 and 3
  low = __byte_perm(a, b, 0x6420);
  high = __byte_perm(a, b, 0x7531) ^ 0x00800080u;
}

// Thread (row, part): part = 2 * chunk + half16 within the 64 k of a stage. UPPER is the stage's parity: low or high nibbles.
template <int UPPER>
__device__ __forceinline__ void fold(const Raw& raw, int row, int part, uint4* high, uint4* low) {
  const int shift = 2 * (part >> 1) + 4 * UPPER;
  const int scale = static_cast<signed char>((UPPER ? raw.scales.y : raw.scales.x) >> (8 * part));
  const int offset = (-32 * scale) * 65537 + 0x8000;
  uint4 h, l;
  fold4<UPPER>(raw.nibbles.x, raw.highs.x, shift, scale, offset, h.x, l.x);
  fold4<UPPER>(raw.nibbles.y, raw.highs.y, shift, scale, offset, h.y, l.y);
  fold4<UPPER>(raw.nibbles.z, raw.highs.z, shift, scale, offset, h.z, l.z);
  fold4<UPPER>(raw.nibbles.w, raw.highs.w, shift, scale, offset, h.w, l.w);
  high[swizzle(row, part)] = h;
  low[swizzle(row, part)] = l;
}

template <bool WIDE>
__device__ __forceinline__ void gemm(const u8* __restrict__ weights, const signed char* __restrict__ a_q,
                                     const float* __restrict__ a_scale, float* __restrict__ out, int tokens, int rows,
                                     int k, int pitch, Shared& shared) {
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
  const int row0 = blockIdx.x * kRows, token0 = blockIdx.y * kTokens;
  const int blocks = k / 256, stages = k / kStageK;
  const bool expander = tid < kExpanders;
  const int my_row = (tid >> 2) % kRows, part = tid & 3;
  const u8* block = weights + static_cast<long long>(min(row0 + my_row, rows - 1)) * blocks * pitch;

  // Activations: a thread copies two 16-byte pieces and one scale per stage.
  const int copy_token = tid >> 2, copy_piece = tid & 3;
  const bool valid0 = token0 + copy_token < tokens, valid1 = token0 + copy_token + kTokens / 2 < tokens;
  const signed char* from = a_q + static_cast<long long>(valid0 ? token0 + copy_token : 0) * k + copy_piece * 16;
  const int to_second = valid1 ? kTokens / 2 * k : 0;
  const int scale_token = tid % kTokens, scale_chunk = tid / kTokens;
  const bool scale_valid = token0 + scale_token < tokens;
  const float* scale_from = a_scale + static_cast<long long>(scale_chunk) * tokens + (scale_valid ? token0 + scale_token : 0);

  // @region stage_a
  auto stage_tokens = [&](int stage) {
    if (stage < stages) {
      const int buffer = stage % kBuffersA;
      uint4* to = shared.tokens[buffer];
      copy_async_16(shared_address(to + swizzle(copy_token, copy_piece)), from + stage * kStageK, valid0);
      copy_async_16(shared_address(to + swizzle(copy_token + kTokens / 2, copy_piece)),
                    from + to_second + stage * kStageK, valid1);
      copy_async_4(shared_address(&shared.token_scale[buffer][scale_chunk][scale_token]),
                   scale_from + static_cast<long long>(stage) * 2 * tokens, scale_valid);
    }
    commit_copies();
  };
  // @end

  for (int s = 0; s < kAheadA; ++s) stage_tokens(s);
  Raw raw = load_raw<WIDE>(block, 0, part);
  unsigned d_bits = load_pair(block + 208);
  if (expander) fold<0>(raw, my_row, part, shared.high[0], shared.low[0]);
  if (expander && part == 0) shared.d[0][my_row] = half_to_float(d_bits);

  // Warps: 2 along rows, 4 along tokens; each computes 32 rows x 32 tokens.
  const int warp_row = (warp & 1) * 32, warp_token = (warp >> 1) * 32;
  const int group = lane >> 2, quad = lane & 3;
  // ldmatrix addresses: lane -> row and 16-byte piece of chunk 0; chunk 1 is two pieces further (xor 2).
  const int a_row = warp_row + (lane & 15), a_piece = lane >> 4;
  const int b_row = warp_token + (lane & 7) + ((lane >> 4) << 3), b_piece = (lane >> 3) & 1;

  float acc[2][4][4] = {};
  float part_sum[2][4][4] = {};

  auto stage_step = [&](int stage, int s) {  // s = stage % 4, known when compiled
    wait_copies<kAheadA - 1>();
    __syncthreads();
    stage_tokens(stage + kAheadA);
    // @region expand_b
    if (stage + 1 < stages && expander) {
      const int next = (s + 1) & 1;
      if (s == 0 || s == 2) {
        fold<1>(raw, my_row, part, shared.high[next], shared.low[next]);
        const u8* source = s == 0 ? block : block + pitch;
        if (s == 0 || stage + 2 < stages) {
          raw = load_raw<WIDE>(source, s == 0 ? 1 : 0, part);
          if (s == 2) d_bits = load_pair(source + 208);
        }
      } else {
        fold<0>(raw, my_row, part, shared.high[next], shared.low[next]);
        if (s == 3) {
          block += pitch;
          if (part == 0) shared.d[((stage + 1) >> 2) & 1][my_row] = half_to_float(d_bits);
        }
      }
    }
    // @end
    const unsigned high = shared_address(shared.high[s & 1]), low = shared_address(shared.low[s & 1]);
    const int buffer = stage % kBuffersA;
    const unsigned b_base = shared_address(shared.tokens[buffer]);
#pragma unroll
    for (int chunk = 0; chunk < 2; ++chunk) {
      // @region mma
      unsigned b[2][4];
#pragma unroll
      for (int pair = 0; pair < 2; ++pair)
        ldmatrix_x4(b[pair], b_base + 16 * swizzle(b_row + 16 * pair, b_piece + 2 * chunk));
      // @end
      // @region scales
      float2 scale[4];
#pragma unroll
      for (int n = 0; n < 4; ++n)
        scale[n] = *reinterpret_cast<const float2*>(&shared.token_scale[buffer][chunk][warp_token + n * 8 + quad * 2]);
      // @end
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        // @region mma
        unsigned a_high[4], a_low[4];
        ldmatrix_x4(a_high, high + 16 * swizzle(a_row + 16 * m, a_piece + 2 * chunk));
        ldmatrix_x4(a_low, low + 16 * swizzle(a_row + 16 * m, a_piece + 2 * chunk));
        // @end
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          int h[4], l[4];
          // @region mma
          mma_s8s8(h, a_high, b[n >> 1][(n & 1) * 2], b[n >> 1][(n & 1) * 2 + 1]);
          mma_u8s8(l, a_low, b[n >> 1][(n & 1) * 2], b[n >> 1][(n & 1) * 2 + 1]);
          // @end
          // @region scales
          float* sum = part_sum[m][n];
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const float dot = static_cast<float>(h[i] * 256 + l[i]);
            sum[i] = s == 0 && chunk == 0 ? dot * (i & 1 ? scale[n].y : scale[n].x)
                                          : fmaf(dot, i & 1 ? scale[n].y : scale[n].x, sum[i]);
          }
          // @end
        }
      }
    }
    // @region scales
    if (s == 3) {
      const float* d = shared.d[(stage >> 2) & 1];
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        const float d0 = d[warp_row + m * 16 + group], d1 = d[warp_row + m * 16 + group + 8];
#pragma unroll
        for (int n = 0; n < 4; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) acc[m][n][i] = fmaf(i & 2 ? d1 : d0, part_sum[m][n][i], acc[m][n][i]);
      }
    }
    // @end
  };

#pragma unroll 1
  for (int stage = 0; stage < stages; stage += 4) {
    stage_step(stage, 0);
    stage_step(stage + 1, 1);
    stage_step(stage + 2, 2);
    stage_step(stage + 3, 3);
  }

  // @region epilogue
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int n = 0; n < 4; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = row0 + warp_row + m * 16 + group + (i & 2 ? 8 : 0);
        const int token = token0 + warp_token + n * 8 + quad * 2 + (i & 1);
        if (row < rows && token < tokens) out[static_cast<long long>(token) * rows + row] = acc[m][n][i];
      }
  // @end
}

}  // namespace

// Rows of 210-byte blocks are not aligned for wide loads: they take the arm that loads 16 bits at a time.
extern "C" __global__ void __launch_bounds__(kThreads, kBlocks)
    NAME(TOKENS)(const u8* __restrict__ weights, const signed char* __restrict__ a_q, const float* __restrict__ a_scale,
               float* __restrict__ out, int tokens, int rows, int k, int pitch, unsigned* __restrict__ witness) {
  extern __shared__ uint4 memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const bool wide = (pitch & 15) == 0 && (reinterpret_cast<unsigned long long>(weights) & 15) == 0;
  if (witness && threadIdx.x == 0 && blockIdx.x == 0 && blockIdx.y == 0) *witness = wide ? 2 : 1;
  if (wide)
    gemm<true>(weights, a_q, a_scale, out, tokens, rows, k, pitch, shared);
  else
    gemm<false>(weights, a_q, a_scale, out, tokens, rows, k, pitch, shared);
}
