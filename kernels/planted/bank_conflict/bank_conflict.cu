// Loads from shared memory in which all lanes meet in one bank: 32 wavefronts instead of one.
#include "../busy.cuh"

#define SIDE 32
#define READS 4

// Symmetric, so that rows and columns read the same values.
__device__ __forceinline__ void fill(unsigned* tile)
{
    for (unsigned i = threadIdx.x; i < SIDE * SIDE; i += blockDim.x) tile[i] = busy(i / SIDE) + busy(i % SIDE);
    __syncthreads();
}

// The loads of a step are consumed after its work: without conflicts their latency is covered.
extern "C" __global__ void bank_conflict_guilty(unsigned* out, int steps, int work)
{
    __shared__ unsigned tile[SIDE * SIDE];
    fill(tile);
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
    unsigned sum = thread;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        unsigned read[READS];
#pragma unroll
        for (int i = 0; i < READS; ++i) {
            // @region tile
            read[i] = tile[lane * SIDE + (step + i) % SIDE];
            // @end
        }
        sum = toil(sum, work);
        for (int i = 0; i < READS; ++i) sum += read[i];
    }
    out[thread] = sum;
}

extern "C" __global__ void bank_conflict_fixed(unsigned* out, int steps, int work)
{
    __shared__ unsigned tile[SIDE * SIDE];
    fill(tile);
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
    unsigned sum = thread;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        unsigned read[READS];
#pragma unroll
        for (int i = 0; i < READS; ++i) {
            // @region tile
            read[i] = tile[(step + i) % SIDE * SIDE + lane];
            // @end
        }
        sum = toil(sum, work);
        for (int i = 0; i < READS; ++i) sum += read[i];
    }
    out[thread] = sum;
}
