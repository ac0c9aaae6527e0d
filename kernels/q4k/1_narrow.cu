// The control: a tile of 64 tokens x 64 rows, four warps of 32 x 32, one chunk of 32 k at a time through one buffer.
// Every chunk reads the block's header again, and nothing is loaded while the tensor cores work.
#include "q4k.cuh"

enum { NARROW = 64, PITCH = CHUNK + 16 };  // the padding keeps eight rows in different banks

extern "C" __global__ void __launch_bounds__(128, 4)
    q4k_gemm_narrow(const u8* weights, const signed char* a_q, const float* a_scale, const float* a_total, float* out,
                    int tokens, int rows, int k) {
    __shared__ __align__(16) u8 sh_a[NARROW * PITCH];
    __shared__ __align__(16) u8 sh_b[NARROW * PITCH];
    __shared__ float2 sh_a_scale[NARROW];
    __shared__ __align__(16) float2 sh_w_scale[NARROW];
    int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
    int token0 = blockIdx.y * NARROW, row0 = blockIdx.x * NARROW;
    int warp_token = (warp >> 1) * 32, warp_row = (warp & 1) * 32;
    int g = lane >> 2, t = lane & 3;

    // Each thread brings 16 bytes: half a row of the chunk. Past the end the last row is repeated and never stored.
    int line = tid >> 1, half = tid & 1;
    const signed char* a_line = a_q + (size_t)min(token0 + line, tokens - 1) * k + half * 16;
    const u8* w_line = weights + (size_t)min(row0 + line, rows - 1) * (k / 256) * BLOCK_BYTES;

    float acc[2][4][4] = {};
    for (int chunk = 0; chunk < k / CHUNK; chunk++) {
        const u8* block = w_line + (size_t)(chunk / CHUNKS) * BLOCK_BYTES;
        int j = chunk % CHUNKS;
        // @region stage_a
        *(uint4*)(sh_a + line * PITCH + half * 16) = *(const uint4*)(a_line + (size_t)chunk * CHUNK);
        // @end
        // @region expand_b
        uint4 raw = *(const uint4*)(block + HEADER_BYTES + (j >> 1) * 32 + half * 16);
        *(uint4*)(sh_b + line * PITCH + half * 16) = make_uint4(nibbles(raw.x, j & 1), nibbles(raw.y, j & 1),
                                                               nibbles(raw.z, j & 1), nibbles(raw.w, j & 1));
        // @end
        // @region scales
        if (half == 0) {
            sh_w_scale[line] = scale_and_min(*(const uint4*)block, j);
        } else {
            size_t at = (size_t)chunk * tokens + min(token0 + line, tokens - 1);
            sh_a_scale[line] = make_float2(a_scale[at], a_total[at]);
        }
        // @end
        __syncthreads();
        // @region mma
        u32 a[2][4];
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                a[m][i] = *(const u32*)(sh_a + (warp_token + m * 16 + (i & 1) * 8 + g) * PITCH + (i >> 1) * 16 + t * 4);
#pragma unroll
        for (int n = 0; n < 4; n++) {
            const u8* b = sh_b + (warp_row + n * 8 + g) * PITCH + t * 4;
            u32 b0 = *(const u32*)b, b1 = *(const u32*)(b + 16);
            float4 w = *(const float4*)(sh_w_scale + warp_row + n * 8 + t * 2);
#pragma unroll
            for (int m = 0; m < 2; m++) {
                int dot[4];
                mma_s8s8(dot, a[m], b0, b1);
                const float2* s = sh_a_scale + warp_token + m * 16 + g;
                rescale(acc[m][n], dot, s[0], s[8], w);
            }
        }
        // @end
        __syncthreads();
    }
    // @region epilogue
    store(out, acc, token0 + warp_token, row0 + warp_row, tokens, rows);
    // @end
}
