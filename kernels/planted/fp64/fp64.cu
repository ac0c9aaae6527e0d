// Multiply-adds in double precision, on a pipe that takes a warp's instruction every other cycle.
#include "../busy.cuh"

// The number that is added up is 1 + m / 2^20: its upper word holds m, its lower word is zero, and the sums stay exact.
// The guilty kernel multiplies and adds it, its twin adds the upper words as integers.
// A look-up beside it, past L1, lets most of the time that is left pass without an instruction.
extern "C" __global__ void __launch_bounds__(1024) fp64_guilty(const unsigned* table, unsigned* out, int steps)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned sum = thread / 32 + 1;
    double total[14] = {};
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        sum = busy(sum + __ldcg(table + (sum & 0xffff)));
        const unsigned upper = (sum & 0xfffff) | 0x3ff00000u;
        // @region double
        const double y = __hiloint2double(upper, 0);
#pragma unroll
        for (int i = 0; i < 56; ++i)
            total[i % 14] = fma(y, i / 14 + 2.0, total[i % 14]);
        // @end
    }
#pragma unroll
    for (int i = 0; i < 14; ++i)
        sum += __double2loint(fma(total[i], 1048576.0, 4503599627370496.0));
    out[thread] = sum;
}

extern "C" __global__ void __launch_bounds__(1024) fp64_fixed(const unsigned* table, unsigned* out, int steps)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned sum = thread / 32 + 1, total = 0;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        sum = busy(sum + __ldcg(table + (sum & 0xffff)));
        const unsigned upper = (sum & 0xfffff) | 0x3ff00000u;
        // @region double
        total += upper;
        // @end
    }
    total -= steps * (0x3ff00000u - 0x100000u);  // what is left of each upper word is 2^20 + m
    out[thread] = sum + total * (14 * (2 + 3 + 4 + 5));
}
