// Sixteen loads of a byte where one load of 16 bytes would do.
#include "../busy.cuh"

// The table is read in pieces of 16 bytes, a lane each, side by side; it stays in L1. A load of one byte a lane touches
// the same four lines as a load of 16 bytes a lane. STRIDE is odd in pieces of a warp, whose number is a power of two:
// each warp visits the whole table.
#define PIECE 16
#define STRIDE (32 * 37)

extern "C" __global__ void byte_loads_guilty(const unsigned char* table, unsigned* out, int pieces, int steps)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned at = thread & (pieces - 1), sum = 0;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        // @region load
        const unsigned char* piece = table + at * PIECE;
        unsigned byte[PIECE];
#pragma unroll
        for (int i = 0; i < PIECE; ++i)
            byte[i] = piece[i];
        // The xor of four words, a byte of it at a time: no more than a dozen instructions beside the loads.
        const unsigned a = byte[0] ^ byte[4] ^ byte[8] ^ byte[12], b = byte[1] ^ byte[5] ^ byte[9] ^ byte[13];
        const unsigned c = byte[2] ^ byte[6] ^ byte[10] ^ byte[14], d = byte[3] ^ byte[7] ^ byte[11] ^ byte[15];
        const unsigned word = a | b << 8 | c << 16 | d << 24;
        // @end
        at = (at + STRIDE) & (pieces - 1);
        sum = busy(sum ^ word);
        sum = busy(sum);
        sum = busy(sum);
        sum = busy(sum);
    }
    out[thread] = sum;
}

extern "C" __global__ void byte_loads_fixed(const unsigned char* table, unsigned* out, int pieces, int steps)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned at = thread & (pieces - 1), sum = 0;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        // @region load
        const uint4 piece = *reinterpret_cast<const uint4*>(table + at * PIECE);
        const unsigned word = piece.x ^ piece.y ^ piece.z ^ piece.w;
        // @end
        at = (at + STRIDE) & (pieces - 1);
        sum = busy(sum ^ word);
        sum = busy(sum);
        sum = busy(sum);
        sum = busy(sum);
    }
    out[thread] = sum;
}
