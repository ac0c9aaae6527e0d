// A tile of 128 tokens x 128 rows in stages of KD chunks (4 or 8). The raw blocks stay packed in shared memory, are
// copied only when the super-block changes, and a warp unpacks nibbles after ldmatrix has brought them to its
// registers. The next stage is copied while the tensor cores work; what has one buffer at KD = 8 is copied between
// stages, so that two blocks fit on an SM.
#include "q4k.cuh"

#define NAME_OF(kd) q4k_gemm_wide_kd##kd
#define NAME(kd) NAME_OF(kd)

enum {
    BUFFERS = KD == 8 ? 1 : 2,  // of raw blocks and activation scales; activations have two
    A_BYTES = TILE * KD * CHUNK,
    RAW_BYTES = TILE * BLOCK_BYTES,  // 144 bytes a row: eight rows lie in different banks as they are
    A_SCALE_BYTES = KD * TILE * 8,
    W_SCALE_BYTES = CHUNKS * TILE * 8,
    // Where they begin in shared memory; the activations are first.
    RAW = 2 * A_BYTES,
    A_SCALE = RAW + BUFFERS * RAW_BYTES,
    W_SCALE = A_SCALE + BUFFERS * A_SCALE_BYTES,
};
static_assert(W_SCALE + W_SCALE_BYTES == SHARED, "spec.py asks for another amount of shared memory");

// Starts copying one super-block of 128 rows as it lies in memory. Past the last row it repeats that one.
__device__ __forceinline__ void copy_raw(u32 to, const u8* weights, int row0, int rows, int blocks, int block) {
    u32 thread = fresh_thread(), unit = thread % 8, line = thread / 8, pitch = blocks * BLOCK_BYTES;
    const u8* from = weights + (size_t)block * BLOCK_BYTES;
#pragma unroll
    for (u32 row = line; row < TILE; row += 32)
        copy_async_16(to + row * BLOCK_BYTES + HEADER_BYTES + unit * 16,
                      from + (size_t)min(row0 + (int)row, rows - 1) * pitch + HEADER_BYTES + unit * 16, true);
    if (thread < TILE)
        copy_async_16(to + thread * BLOCK_BYTES, from + (size_t)min(row0 + (int)thread, rows - 1) * pitch, true);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    NAME(KD)(const u8* weights, const signed char* a_q, const float* a_scale, const float* a_total, float* out,
             int tokens, int rows, int k) {
    extern __shared__ __align__(128) u8 shared[];
    u32 base = shared_address(shared);
    int token0 = blockIdx.y * TILE, row0 = blockIdx.x * TILE;
    u32 blocks = (u32)k / 256, stages = (u32)k / (KD * CHUNK);

    copy_activations<KD>(base, a_q, token0, tokens, k, 0);
    copy_activation_scales<KD>(base + A_SCALE, a_scale, a_total, token0, tokens, 0);
    copy_raw(base + RAW, weights, row0, rows, blocks, 0);

    float acc[4][4][4] = {};
    for (u32 round = 0; round < blocks * 2; round++) {
        hide(round);
        u32 stage = round / ROUNDS, raw_at = RAW + round / 2 % BUFFERS * RAW_BYTES;
        if (round % ROUNDS == 0) {
            u32 next = stage + 1;
            commit_copies();
            wait_copies<0>();
            __syncthreads();  // the stage is there, and nobody reads the one before it any more
            if (next < stages) {
                // @region stage_a
                copy_activations<KD>(base + next % 2 * A_BYTES, a_q, token0, tokens, k, next * (KD * CHUNK));
                // @end
            }
            if (BUFFERS == 2 && next < stages) {
                // @region scales
                copy_activation_scales<KD>(base + A_SCALE + next % 2 * A_SCALE_BYTES, a_scale, a_total, token0, tokens,
                                           next * KD);
                // @end
                // @region expand_b
                if (next % 2 == 0)
                    copy_raw(base + RAW + next / 2 % 2 * RAW_BYTES, weights, row0, rows, blocks, next / 2);
                // @end
            }
        }
        if (round % 2 == 0) {
            // @region scales
            // A thread decodes half a header.
            u32 thread = fresh_thread(), line = thread % TILE, first = thread / TILE * 4;
            float2* w_scale = (float2*)(shared + W_SCALE);
            uint4 header = *(const uint4*)(shared + raw_at + line * BLOCK_BYTES);
#pragma unroll
            for (u32 j = first; j < first + 4; j++) w_scale[j * TILE + line] = scale_and_min(header, j);
            // @end
            __syncthreads();
        }

        // @region mma
        Lane at = lane_of(fresh_thread());
        u32 a_from = base + stage % 2 * A_BYTES + at.a_row * (KD * CHUNK) + round % ROUNDS * 128 + at.a_unit;
        u32 b_from = base + raw_at + at.b_row * BLOCK_BYTES + HEADER_BYTES + round % 2 * 64 + at.b_half * 16;
        const float2* a_pair = (const float2*)(shared + A_SCALE + stage % BUFFERS * A_SCALE_BYTES) +
                               round % ROUNDS * (4 * TILE) + at.token;
        const float2* w_pair = (const float2*)(shared + W_SCALE) + round % 2 * (4 * TILE) + at.row;
        // @end
        u32 raw[2][4];
#pragma unroll
        for (u32 chunk = 0; chunk < 4; chunk++) {
            // @region expand_b
            // 32 bytes of a row hold two chunks: one in the low nibbles, one in the high nibbles.
#pragma unroll
            for (u32 i = 0; i < 2; i++)
                if (chunk % 2 == 0) ldmatrix_x4(raw[i], b_from + chunk * 16 + i * 16 * BLOCK_BYTES);
            u32 b[2][4];
#pragma unroll
            for (u32 i = 0; i < 8; i++) b[i / 4][i % 4] = nibbles(raw[i / 4][i % 4], chunk % 2);
            // @end
            // @region mma
            mma_chunk(acc, a_from ^ chunk * CHUNK, KD * CHUNK, b, a_pair + chunk * TILE, w_pair + chunk * TILE);
            // @end
        }
        if (BUFFERS == 1 && round % 2 == 1 && stage + 1 < stages) {
            __syncthreads();  // nobody reads the single buffers any more
            // @region scales
            copy_activation_scales<KD>(base + A_SCALE, a_scale, a_total, token0, tokens, (stage + 1) * KD);
            // @end
            // @region expand_b
            copy_raw(base + RAW, weights, row0, rows, blocks, stage + 1);
            // @end
        }
    }
    // @region epilogue
    store(out, acc, token0 + threadIdx.x / 128 * 64, row0 + threadIdx.x / 32 % 4 * 32, tokens, rows);
    // @end
}
