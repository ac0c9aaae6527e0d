// An uncoalesced load: one word of each record of 160 bytes.
#include "../busy.cuh"

// keys holds the first word of each record, and nothing else: 64 KB that stay in L1, where the records, 2.6 MB, do not.
// A load from the records touches 32 sectors, each of which brings one word; RECORD is odd in sectors, so that they are
// spread over all banks of L2. The number of records is a power of two: in time each warp visits all of them. A key is
// needed after the work of its step, which covers what a load from L1 takes.
#define RECORD 40
#define STRIDE (32 * 149)

extern "C" __global__ void strided_guilty(
    const unsigned* records, const unsigned* keys, unsigned* out, int count, int steps)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned at = thread & (count - 1), sum = 0;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        // @region key
        const unsigned key = records[at * RECORD];
        // @end
        at = (at + STRIDE) & (count - 1);
        sum = toil(sum, 3) ^ key;
    }
    out[thread] = sum;
}

extern "C" __global__ void strided_fixed(
    const unsigned* records, const unsigned* keys, unsigned* out, int count, int steps)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned at = thread & (count - 1), sum = 0;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        // @region key
        const unsigned key = keys[at];
        // @end
        at = (at + STRIDE) & (count - 1);
        sum = toil(sum, 3) ^ key;
    }
    out[thread] = sum;
}
