// q4_K rung 6: the minimums go to the tensor cores too, and fragments come by ldmatrix from swizzled rows.
//
// The minimum's part of a row and token is a sum over chunks, sum_c (dmin * m_c) * total_c: a product over k/32. Eight
// chunks of a super-block are one tf32 mma (m16n8k8): m is a 6-bit integer, exact in tf32, and a total goes in as
// the sum of two tf32 numbers. Tile: 64 rows x 128 tokens, warps of 32 x 32, raw nibbles expanded at staging.
#include "../formats/ptx.cuh"

typedef unsigned char u8;

namespace {

constexpr int kRows = 64, kTokens = 128, kThreads = 256, kStageK = 64;
constexpr int kAheadA = 3;    // stages of activations in flight; one more is being read
constexpr int kBuffersA = 4;  // as many as stages in a super-block: stage s of it always finds buffer s

struct Shared {
  uint4 weights[2][kRows * kStageK / 16];
  uint4 tokens[kBuffersA][kTokens * kStageK / 16];
  float token_scale[kBuffersA][2][kTokens];
  float total[2][8][kTokens + 8];   // by parity of the super-block; padded: quads read 4 chunks at once
  float scale[2][8][kRows];         // d * sc
  unsigned minimum[2][kRows][12];   // m as tf32; padded against bank conflicts
  float d_minimum[2][kRows];
};

// spec.py asks for as much.
static_assert(sizeof(Shared) == 2 * kRows * kStageK + kBuffersA * kTokens * (kStageK + 8) +
                                    8 * (8 * (kTokens + 8) + 8 * kRows + 12 * kRows + kRows),
              "shared memory");

__device__ __forceinline__ int swizzle(int row, int piece) { return row * 4 + (piece ^ ((row >> 1) & 3)); }

// Byte i of the 12 packed scale bytes (words 1 to 3 of a block's header).
__device__ __forceinline__ unsigned packed(const uint4& header, int i) {
  const unsigned word = i < 4 ? header.y : i < 8 ? header.z : header.w;
  return word >> (8 * (i & 3)) & 0xffu;
}

// Thread (row, part) unpacks scales and minimums of sub-blocks 2 * part and 2 * part + 1.
__device__ __forceinline__ void unpack_scales(const uint4& header, int row, int part, Shared& shared, int parity) {
  const float d = half_to_float(header.x & 0xffffu);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int j = 2 * part + i, k = j & 3;
    const unsigned s = packed(header, k), m = packed(header, k + 4), both = packed(header, k + 8);
    const unsigned sc = j < 4 ? s & 63u : (both & 15u) | (s >> 6) << 4;
    const unsigned mn = j < 4 ? m & 63u : (both >> 4) | (m >> 6) << 4;
    shared.scale[parity][j][row] = d * static_cast<float>(sc);
    shared.minimum[parity][row][j] = __float_as_uint(static_cast<float>(mn));
  }
  if (part == 0) shared.d_minimum[parity][row] = half_to_float(header.x >> 16);
}

// Thread (row, part): 8 bytes of the stage's 32, so 8 weights of its first chunk and 8 of its second.
__device__ __forceinline__ void expand(const uint2& nibbles, int row, int part, uint4* weights) {
  const uint2 low = make_uint2(nibbles.x & 0x0f0f0f0fu, nibbles.y & 0x0f0f0f0fu);
  const uint2 high = make_uint2(nibbles.x >> 4 & 0x0f0f0f0fu, nibbles.y >> 4 & 0x0f0f0f0fu);
  reinterpret_cast<uint2*>(weights + swizzle(row, part >> 1))[part & 1] = low;
  reinterpret_cast<uint2*>(weights + swizzle(row, 2 + (part >> 1)))[part & 1] = high;
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads, 2)
    q4k_gemm_tensor_mins(const u8* __restrict__ weights, const signed char* __restrict__ a_q,
                    const float* __restrict__ a_scale, const float* __restrict__ a_total, float* __restrict__ out,
                    int tokens, int rows, int k) {
  extern __shared__ uint4 memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
  const int row0 = blockIdx.x * kRows, token0 = blockIdx.y * kTokens;
  const int blocks = k / 256, stages = k / kStageK;

  const int my_row = tid >> 2, part = tid & 3;
  const u8* block = weights + static_cast<long long>(min(row0 + my_row, rows - 1)) * blocks * 144;
  auto load_header = [&](const u8* b) { return __ldg(reinterpret_cast<const uint4*>(b)); };
  auto load_nibbles = [&](const u8* b, int s) { return __ldg(reinterpret_cast<const uint2*>(b + 16 + s * 32 + part * 8)); };

  const int copy_token = tid >> 2, copy_piece = tid & 3;
  const bool valid0 = token0 + copy_token < tokens, valid1 = token0 + copy_token + kTokens / 2 < tokens;
  const signed char* from = a_q + static_cast<long long>(valid0 ? token0 + copy_token : 0) * k + copy_piece * 16;
  const int to_second = valid1 ? kTokens / 2 * k : 0;
  const int scale_token = tid % kTokens, scale_chunk = tid / kTokens;
  const bool scale_valid = token0 + scale_token < tokens;
  long long scale_at = static_cast<long long>(scale_chunk) * tokens + (scale_valid ? token0 + scale_token : 0);

  // @region stage_a
  // Copies the activations of stage `s` counted from the super-block at `from` (s may reach into the next one).
  auto stage_tokens = [&](int s, int parity, bool exists) {
    if (exists) {
      uint4* to = shared.tokens[s % kBuffersA];
      copy_async_16(shared_address(to + swizzle(copy_token, copy_piece)), from + s * kStageK, valid0);
      copy_async_16(shared_address(to + swizzle(copy_token + kTokens / 2, copy_piece)), from + to_second + s * kStageK,
                    valid1);
      copy_async_4(shared_address(&shared.token_scale[s % kBuffersA][scale_chunk][scale_token]), a_scale + scale_at,
                   scale_valid);
      copy_async_4(shared_address(&shared.total[parity][(s & 3) * 2 + scale_chunk][scale_token]), a_total + scale_at,
                   scale_valid);
      scale_at += 2 * tokens;
    }
    commit_copies();
  };
  // @end

#pragma unroll
  for (int s = 0; s < kAheadA; ++s) stage_tokens(s, 0, true);  // k is a multiple of four stages
  uint4 header = load_header(block);
  uint2 nibbles = load_nibbles(block, 0);
  unpack_scales(header, my_row, part, shared, 0);
  expand(nibbles, my_row, part, shared.weights[0]);
  nibbles = load_nibbles(block, 1);

  const int warp_row = (warp & 1) * 32, warp_token = (warp >> 1) * 32;
  const int group = lane >> 2, quad = lane & 3;
  const int a_row = warp_row + (lane & 15), a_piece = lane >> 4;
  const int b_row = warp_token + (lane & 7) + ((lane >> 4) << 3), b_piece = (lane >> 3) & 1;

  float acc[2][4][4] = {};

  auto stage_step = [&](int stage, int s) {  // s = stage % 4, known when compiled
    wait_copies<kAheadA - 1>();
    __syncthreads();
    const int parity = (stage >> 2) & 1;
    stage_tokens(s + kAheadA, s == 0 ? parity : parity ^ 1, stage + kAheadA < stages);
    // @region expand_b
    if (stage + 1 < stages) {
      expand(nibbles, my_row, part, shared.weights[(s + 1) & 1]);
      if (s == 3) {
        block += 144;
        unpack_scales(header, my_row, part, shared, parity ^ 1);
      }
      if (stage + 2 < stages) {
        nibbles = load_nibbles(s == 2 ? block + 144 : block, (s + 2) & 3);
        if (s == 2) header = load_header(block + 144);
      }
    }
    // @end
    const unsigned a_base = shared_address(shared.weights[s & 1]), b_base = shared_address(shared.tokens[s]);
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
        scale[n] = *reinterpret_cast<const float2*>(&shared.token_scale[s][chunk][warp_token + n * 8 + quad * 2]);
      // @end
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        // @region mma
        unsigned a[4];
        ldmatrix_x4(a, a_base + 16 * swizzle(a_row + 16 * m, a_piece + 2 * chunk));
        // @end
        // @region scales
        const float* row_scale = &shared.scale[parity][2 * s + chunk][warp_row + m * 16 + group];
        const float scale0 = row_scale[0], scale1 = row_scale[8];
        // @end
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          int dot[4];
          // @region mma
          mma_s8s8(dot, a, b[n >> 1][(n & 1) * 2], b[n >> 1][(n & 1) * 2 + 1]);
          // @end
          // @region scales
#pragma unroll
          for (int i = 0; i < 4; ++i)
            acc[m][n][i] = fmaf(static_cast<float>(dot[i]), (i & 2 ? scale1 : scale0) * (i & 1 ? scale[n].y : scale[n].x),
                                acc[m][n][i]);
          // @end
        }
      }
    }
    // @region mins
    if (s == 3) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const int token = warp_token + n * 8 + group;
        const float t0 = shared.total[parity][quad][token], t1 = shared.total[parity][quad + 4][token];
        const unsigned high0 = to_tf32(t0), high1 = to_tf32(t1);
        const unsigned rest0 = to_tf32(t0 - __uint_as_float(high0)), rest1 = to_tf32(t1 - __uint_as_float(high1));
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          const int row = warp_row + m * 16 + group;
          const unsigned* low = shared.minimum[parity][row];
          const unsigned* high = shared.minimum[parity][row + 8];
          const unsigned a[4] = {low[quad], high[quad], low[quad + 4], high[quad + 4]};
          float sum[4] = {};
          mma_tf32(sum, a, rest0, rest1);
          mma_tf32(sum, a, high0, high1);
          const float d0 = shared.d_minimum[parity][row], d1 = shared.d_minimum[parity][row + 8];
#pragma unroll
          for (int i = 0; i < 4; ++i) acc[m][n][i] = fmaf(i & 2 ? -d1 : -d0, sum[i], acc[m][n][i]);
        }
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
    from += 4 * kStageK;
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
