// The row and the column of a place, by a division by a width that only the launch knows.
#include "../busy.cuh"

// Widths are powers of two, so that the twin can shift. They depend on the place: no reciprocal can be found once and
// for all.
extern "C" __global__ void integer_division_guilty(unsigned* out, unsigned narrow, unsigned bits, int steps)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned sum = thread + 1;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        sum = busy(sum);
        const unsigned width = narrow << (sum & 1);
        // @region divide
        const unsigned row = sum / width;
        // @end
        const unsigned column = sum - row * width;
        sum += row * 31 + column;
    }
    out[thread] = sum;
}

extern "C" __global__ void integer_division_fixed(unsigned* out, unsigned narrow, unsigned bits, int steps)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned sum = thread + 1;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        sum = busy(sum);
        const unsigned width = narrow << (sum & 1);
        // @region divide
        const unsigned row = sum >> (bits + (sum & 1));
        // @end
        const unsigned column = sum - row * width;
        sum += row * 31 + column;
    }
    out[thread] = sum;
}
