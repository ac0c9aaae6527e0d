// The tile and the stages of 2_wide.cu, fed from planes that were expanded when the weights were loaded: EB holds a
// weight a byte, [super-block][row][8][32], SB holds (w_scale, w_min), [chunk][row]. Staging them is nothing but
// 16-byte copies, and the main loop neither unpacks nor decodes. Rows of the planes are padded to the tile.
#include "q4k.cuh"

#define NAME_OF(kd) q4k_gemm_planes_kd##kd
#define NAME(kd) NAME_OF(kd)

enum {
    BUFFERS = KD == 8 ? 1 : 2,  // of weights and scales; activations have two
    A_BYTES = TILE * KD * CHUNK,
    B_BYTES = TILE * KD * CHUNK,
    A_SCALE_BYTES = KD * TILE * 8,
    W_SCALE_BYTES = KD * TILE * 8,
    // Where they begin in shared memory; the activations are first.
    B = 2 * A_BYTES,
    A_SCALE = B + BUFFERS * B_BYTES,
    W_SCALE = A_SCALE + BUFFERS * A_SCALE_BYTES,
};
static_assert(W_SCALE + BUFFERS * W_SCALE_BYTES == SHARED, "spec.py asks for another amount of shared memory");

// Starts copying a stage of 128 rows of EB.
__device__ __forceinline__ void copy_weights(u32 to, const signed char* eb, u32 row0, u32 padded, u32 stage) {
    constexpr u32 UNITS = KD * 2, LINES = THREADS / UNITS;
    u32 thread = fresh_thread(), unit = thread % UNITS, line = thread / UNITS;
    const signed char* from =
        eb + ((size_t)(stage / (CHUNKS / KD)) * padded + row0) * 256 + stage % (CHUNKS / KD) * (KD * CHUNK);
#pragma unroll
    for (u32 row = line; row < TILE; row += LINES)
        copy_async_16(to + row * (KD * CHUNK) + swizzled(unit, row), from + row * 256 + unit * 16, true);
}

// Starts copying a stage of 128 rows of SB: two rows' pairs a thread.
__device__ __forceinline__ void copy_weight_scales(u32 to, const float2* sb, u32 row0, u32 padded, u32 stage) {
    u32 thread = fresh_thread(), first = thread / 64, line = thread % 64 * 2;
#pragma unroll
    for (u32 chunk = first; chunk < KD; chunk += 4)
        copy_async_16(to + (chunk * TILE + line) * 8, sb + (size_t)(stage * KD + chunk) * padded + row0 + line, true);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    NAME(KD)(const signed char* eb, const float2* sb, const signed char* a_q, const float* a_scale,
             const float* a_total, float* out, int tokens, int rows, int k) {
    extern __shared__ __align__(128) u8 shared[];
    u32 base = shared_address(shared);
    int token0 = blockIdx.y * TILE, row0 = blockIdx.x * TILE;
    u32 padded = gridDim.x * TILE, blocks = (u32)k / 256, stages = (u32)k / (KD * CHUNK);

    copy_activations<KD>(base, a_q, token0, tokens, k, 0);
    copy_activation_scales<KD>(base + A_SCALE, a_scale, a_total, token0, tokens, 0);
    copy_weights(base + B, eb, row0, padded, 0);
    copy_weight_scales(base + W_SCALE, sb, row0, padded, 0);

    float acc[4][4][4] = {};
    for (u32 round = 0; round < blocks * 2; round++) {
        hide(round);
        u32 stage = round / ROUNDS;
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
                copy_weight_scales(base + W_SCALE + next % 2 * W_SCALE_BYTES, sb, row0, padded, next);
                // @end
                // @region expand_b
                copy_weights(base + B + next % 2 * B_BYTES, eb, row0, padded, next);
                // @end
            }
        }

        // @region mma
        Lane at = lane_of(fresh_thread());
        u32 a_from = base + stage % 2 * A_BYTES + at.a_row * (KD * CHUNK) + round % ROUNDS * 128 + at.a_unit;
        u32 b_from = base + B + stage % BUFFERS * B_BYTES + at.b_row * (KD * CHUNK) + round % ROUNDS * 128 + at.b_unit;
        const float2* a_pair = (const float2*)(shared + A_SCALE + stage % BUFFERS * A_SCALE_BYTES) +
                               round % ROUNDS * (4 * TILE) + at.token;
        const float2* w_pair = (const float2*)(shared + W_SCALE + stage % BUFFERS * W_SCALE_BYTES) +
                               round % ROUNDS * (4 * TILE) + at.row;
#pragma unroll
        for (u32 chunk = 0; chunk < 4; chunk++) {
            u32 b[2][4];
#pragma unroll
            for (u32 i = 0; i < 2; i++) ldmatrix_x4(b[i], (b_from ^ chunk * CHUNK) + i * 16 * (KD * CHUNK));
            mma_chunk(acc, a_from ^ chunk * CHUNK, KD * CHUNK, b, a_pair + chunk * TILE, w_pair + chunk * TILE);
        }
        // @end
        if (BUFFERS == 1 && round % 2 == 1 && stage + 1 < stages) {
            __syncthreads();  // nobody reads the single buffers any more
            // @region scales
            copy_activation_scales<KD>(base + A_SCALE, a_scale, a_total, token0, tokens, (stage + 1) * KD);
            copy_weight_scales(base + W_SCALE, sb, row0, padded, stage + 1);
            // @end
            // @region expand_b
            copy_weights(base + B, eb, row0, padded, stage + 1);
            // @end
        }
    }
    // @region epilogue
    store(out, acc, token0 + threadIdx.x / 128 * 64, row0 + threadIdx.x / 32 % 4 * 32, tokens, rows);
    // @end
}
