// What the q4_K kernels share.
//
// C[token][row] = sum over k of W[row][k] * A[token][k] with int8 tensor cores. 32 weights share a scale and a min, 32
// activations share a scale: one mma with k = 32 gives an exact integer, which is scaled and added in the order of k,
//     acc = fma(dot, w_scale * a_scale, acc);  acc = fma(w_min, a_total, acc)
// with a_total = a_scale * (sum of the 32 activations). All rungs do exactly this, to the bit.
//
// Regions: stage_a (activations to shared memory), expand_b (weights: staged and unpacked), scales, mma, epilogue.

#pragma once
#include "../formats/ptx.cuh"

typedef unsigned char u8;
typedef unsigned int u32;

enum { BLOCK_BYTES = 144, HEADER_BYTES = 16, CHUNK = 32, CHUNKS = 8 };

// (w_scale, w_min) = (d * sc, -(dmin * m)) of sub-block j. The header: f16 d and dmin, then 12 bytes. The low six bits
// of bytes 0..3 and of 4..7 are sc and m of sub-blocks 0..3. Those of 4..7 have their low four bits in the nibbles of
// bytes 8..11, and their high two in the bits left over.
__device__ __forceinline__ float2 scale_and_min(const uint4& header, u32 j) {
    u32 sc = header.y & 0x3f3f3f3f, m = header.z & 0x3f3f3f3f;
    if (j >= 4) {
        sc = (header.w & 0x0f0f0f0f) | ((header.y >> 2) & 0x30303030);
        m = ((header.w >> 4) & 0x0f0f0f0f) | ((header.z >> 2) & 0x30303030);
    }
    u32 shift = 8 * (j & 3);
    float d = half_to_float(header.x & 0xffff), dmin = half_to_float(header.x >> 16);
    return make_float2(__fmul_rn(d, (float)((sc >> shift) & 255)), -__fmul_rn(dmin, (float)((m >> shift) & 255)));
}

// Four weights (0..15, one a byte) of the low (odd = 0) or the high nibbles of four bytes.
__device__ __forceinline__ u32 nibbles(u32 bytes, u32 odd) { return (bytes >> (4 * odd)) & 0x0f0f0f0f; }

// Adds one chunk to 16 tokens x 8 rows. With g = lane / 4 and t = lane % 4, an mma gives a lane the products (token,
// row) (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1). a0, a1: (a_scale, a_total) of tokens g and g + 8; w:
// (w_scale, w_min) of row 2t, then of row 2t + 1.
__device__ __forceinline__ void rescale(float (&acc)[4], const int (&dot)[4], float2 a0, float2 a1, float4 w) {
    acc[0] = __fmaf_rn(w.y, a0.y, __fmaf_rn(__int2float_rn(dot[0]), __fmul_rn(w.x, a0.x), acc[0]));
    acc[1] = __fmaf_rn(w.w, a0.y, __fmaf_rn(__int2float_rn(dot[1]), __fmul_rn(w.z, a0.x), acc[1]));
    acc[2] = __fmaf_rn(w.y, a1.y, __fmaf_rn(__int2float_rn(dot[2]), __fmul_rn(w.x, a1.x), acc[2]));
    acc[3] = __fmaf_rn(w.w, a1.y, __fmaf_rn(__int2float_rn(dot[3]), __fmul_rn(w.z, a1.x), acc[3]));
}

// Writes a warp's M x N tiles of 16 tokens x 8 rows, the first of which begins at (token, row); skips what lies
// outside.
template <int M, int N>
__device__ __forceinline__ void store(float* out, const float (&acc)[M][N][4], int token, int row, int tokens,
                                      int rows) {
    // Not from threadIdx.x, parts of which the main loop would keep in registers for this.
    int lane;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    token += lane / 4;
    row += lane % 4 * 2;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int i = token + m * 16 + half * 8;
            if (i >= tokens) continue;
            float* line = out + (size_t)i * rows;
#pragma unroll
            for (int n = 0; n < N; n++) {
                int j = row + n * 8;
                float first = acc[m][n][half * 2], second = acc[m][n][half * 2 + 1];
                // An even row length keeps pairs aligned, and no pair then straddles the end.
                if (rows % 2 == 0) {
                    if (j < rows) *(float2*)(line + j) = make_float2(first, second);
                } else {
                    if (j < rows) line[j] = first;
                    if (j + 1 < rows) line[j + 1] = second;
                }
            }
        }
}

// The wide kernels: a tile of 128 tokens x 128 rows, eight warps of 64 x 32. Rows of shared memory that ldmatrix reads
// are swizzled: 16-byte unit u of row r lies at unit u ^ (r & 7), so that eight rows never meet in a bank. A row
// begins at a multiple of 128 bytes, so that chunk c lies at `address of chunk 0 ^ c * 32` within 128 bytes.
enum { TILE = 128, THREADS = 256 };
#ifdef KD
// A stage is one or two rounds of four chunks. Rounds of one size, numbered by one counter, keep the registers within
// 128.
enum { ROUNDS = KD / 4 };
#endif

__device__ __forceinline__ u32 swizzled(u32 unit, u32 row) { return (unit ^ (row & 7)) << 4; }

// Hides from the compiler what it knows of a number: what is made from it is computed anew for each stage, and holds no
// registers while the tensor cores work.
__device__ __forceinline__ void hide(u32& number) { asm volatile("" : "+r"(number)); }
__device__ __forceinline__ u32 fresh_thread() {
    u32 thread = threadIdx.x;
    hide(thread);
    return thread;
}

// Starts copying COUNT chunks of the activations of 128 tokens from k0 on; past the last token it writes zeros.
template <int COUNT>
__device__ __forceinline__ void copy_activations(u32 to, const signed char* a_q, int token0, int tokens, int k,
                                                 int k0) {
    constexpr int UNITS = COUNT * 2, LINES = THREADS / UNITS;
    u32 thread = fresh_thread(), unit = thread % UNITS, line = thread / UNITS;
    const signed char* from = a_q + (size_t)(token0 + line) * k + k0 + unit * 16;
    to += line * (COUNT * CHUNK) + swizzled(unit, line);
#pragma unroll
    for (int i = 0; i < TILE; i += LINES)
        copy_async_16(to + i * (COUNT * CHUNK), from + (size_t)i * k, token0 + (int)line + i < tokens);
}

// Starts copying (a_scale, a_total) of COUNT chunks as pairs, [chunk][token]; past the last token it repeats that one.
// Rows of the planes have any alignment: four bytes at a time.
template <int COUNT>
__device__ __forceinline__ void copy_activation_scales(u32 to, const float* a_scale, const float* a_total, int token0,
                                                       u32 tokens, u32 chunk0) {
    u32 thread = fresh_thread(), line = thread % TILE, which = thread / TILE;
    const float* from = (which ? a_total : a_scale) + (size_t)chunk0 * tokens + min(token0 + line, tokens - 1);
#pragma unroll
    for (u32 chunk = 0; chunk < COUNT; chunk++, from += tokens)
        copy_async_4(to + (chunk * TILE + line) * 8 + which * 4, from, true);
}

// What a thread's lane reads of the tile. It points ldmatrix at token lane % 16 of A, and at row lane % 8 of B or of
// the eight rows after; its results are of tokens `token` + 8 i, and of rows `row` + 8 i and the row after.
struct Lane {
    u32 a_row, a_unit, b_row, b_half, b_unit, token, row;
};
__device__ __forceinline__ Lane lane_of(u32 thread) {
    u32 lane = thread % 32, warp_token = thread / 128 * 64, warp_row = thread / 32 % 4 * 32;
    Lane at;
    at.a_row = warp_token + lane % 16;
    at.a_unit = swizzled(lane / 16, lane);
    at.b_row = warp_row + lane / 16 * 8 + lane % 8;
    at.b_half = lane / 8 % 2;
    at.b_unit = swizzled(at.b_half, lane);
    at.token = warp_token + lane / 4;
    at.row = warp_row + lane % 4 * 2;
    return at;
}

// One chunk of a warp, 64 tokens x 32 rows. a_from: where the lane points ldmatrix for the first 16 tokens, of a_pitch
// bytes each; b: weights, two tiles of eight rows each; a_pair, w_pair: (scale, total), (scale, min) from its first
// token and row on.
__device__ __forceinline__ void mma_chunk(float (&acc)[4][4][4], u32 a_from, u32 a_pitch, const u32 (&b)[2][4],
                                          const float2* a_pair, const float2* w_pair) {
    float4 w[4];
#pragma unroll
    for (int n = 0; n < 4; n++) w[n] = *(const float4*)(w_pair + n * 8);
#pragma unroll
    for (int m = 0; m < 4; m++) {
        u32 a[4];
        ldmatrix_x4(a, a_from + m * 16 * a_pitch);
        float2 a0 = a_pair[m * 16], a1 = a_pair[m * 16 + 8];
#pragma unroll
        for (int n = 0; n < 4; n++) {
            int dot[4];
            mma_s8s8(dot, a, b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
            rescale(acc[m][n], dot, a0, a1, w[n]);
        }
    }
}
