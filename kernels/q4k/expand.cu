// Load time: raw blocks -> the planes of 4_planes.cu. A thread expands one sub-block of 32 weights of one row; the rows
// that pad the planes to the tile become zeros. Grid: (padded * 8 / 256, super-blocks of a row), 256 threads.
#include "q4k.cuh"

extern "C" __global__ void __launch_bounds__(256)
    q4k_expand_planes(const u8* weights, signed char* eb, float2* sb, int rows, int padded) {
    int index = blockIdx.x * 256 + threadIdx.x, row = index / CHUNKS, j = index % CHUNKS, block = blockIdx.y;
    uint4 low = make_uint4(0, 0, 0, 0), high = low;
    float2 scale = make_float2(0, 0);
    if (row < rows) {
        const u8* raw = weights + ((size_t)row * gridDim.y + block) * BLOCK_BYTES;
        const uint4* bytes = (const uint4*)(raw + HEADER_BYTES + j / 2 * 32);
        low = bytes[0], high = bytes[1];
        scale = scale_and_min(*(const uint4*)raw, j);
    }
    uint4* to = (uint4*)(eb + ((size_t)block * padded + row) * 256 + j * CHUNK);
    to[0] = make_uint4(nibbles(low.x, j % 2), nibbles(low.y, j % 2), nibbles(low.z, j % 2), nibbles(low.w, j % 2));
    to[1] = make_uint4(nibbles(high.x, j % 2), nibbles(high.y, j % 2), nibbles(high.z, j % 2), nibbles(high.w, j % 2));
    sb[(size_t)(block * CHUNKS + j) * padded + row] = scale;
}
