// float32 activations -> int8 with one scale and one total per 32 values; see ../formats/q8.py.
//   x      float [tokens][k], k a multiple of 32
//   q      int8 [tokens][k]
//   scale  float [k/32][tokens]   max|x| / 127
//   total  float [k/32][tokens]   scale * sum(q)
// Every operation is spelt out, so that no contraction or reordering can change a bit against NumPy.

#define CHUNK 32

typedef signed char int8;

// The largest value of a chunk as formats/q8.py takes it: below 2^-100 it counts as zero.
__device__ __forceinline__ float counted(float largest) { return largest >= 0x1p-100f ? largest : 0.f; }

__device__ __forceinline__ float inverse_of(float largest)
{
    return largest > 0.f ? __fdiv_rn(127.f, largest) : 0.f;
}

// One thread a chunk: neighbouring threads read rows that lie k values apart.
extern "C" __global__ void __launch_bounds__(128) q8_plain(
    const float* __restrict__ x, int8* __restrict__ q, float* __restrict__ scale, float* __restrict__ total,
    int tokens, int k)
{
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= (long long)tokens * (k / CHUNK)) return;
    long long chunk = at / tokens, token = at % tokens;
    const float* from = x + token * k + chunk * CHUNK;
    int8* to = q + token * k + chunk * CHUNK;
    // @region load
    float largest = 0.f;
    for (int i = 0; i < CHUNK; i++) largest = fmaxf(largest, fabsf(from[i]));
    // @end
    // @region quantise
    largest = counted(largest);
    float inverse = inverse_of(largest);
    int sum = 0;
    for (int i = 0; i < CHUNK; i++) {
        int value = __float2int_rn(__fmul_rn(from[i], inverse));
        to[i] = (int8)value;
        sum += value;
    }
    // @end
    // @region planes
    float s = __fdiv_rn(largest, 127.f);
    scale[at] = s;
    total[at] = __fmul_rn(s, (float)sum);
    // @end
}

// A block of 256 threads takes TOKENS tokens by CHUNKS chunks. Eight threads share a chunk, four values each, so a warp
// reads 512 and writes 128 contiguous bytes of one token; the planes go through shared memory, to be stored by token.
#define TOKENS 32
#define CHUNKS 4
#define ROUNDS (TOKENS * CHUNKS * 8 / 256)

extern "C" __global__ void __launch_bounds__(256) q8_vector(
    const float* __restrict__ x, int8* __restrict__ q, float* __restrict__ scale, float* __restrict__ total,
    int tokens, int k)
{
    __shared__ float scales[CHUNKS][TOKENS + 1], totals[CHUNKS][TOKENS + 1];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int chunks = k / CHUNK;
    int chunk0 = blockIdx.x * CHUNKS, token0 = blockIdx.y * TOKENS;
    int chunk = chunk0 + (lane >> 3);
    // @region load
    // All loads first: they are in flight together.
    float4 v[ROUNDS];
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
        int token = token0 + r * 8 + warp;
        v[r] = make_float4(0.f, 0.f, 0.f, 0.f);
        if (token < tokens && chunk < chunks)
            v[r] = *(const float4*)(x + (long long)token * k + chunk * CHUNK + (lane & 7) * 4);
    }
    // @end
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
        int here = r * 8 + warp, token = token0 + here;
        // @region quantise
        float largest = fmaxf(fmaxf(fabsf(v[r].x), fabsf(v[r].y)), fmaxf(fabsf(v[r].z), fabsf(v[r].w)));
#pragma unroll
        for (int step = 1; step < 8; step *= 2)
            largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
        largest = counted(largest);
        float inverse = inverse_of(largest);
        int a = __float2int_rn(__fmul_rn(v[r].x, inverse)), b = __float2int_rn(__fmul_rn(v[r].y, inverse));
        int c = __float2int_rn(__fmul_rn(v[r].z, inverse)), d = __float2int_rn(__fmul_rn(v[r].w, inverse));
        int sum = a + b + c + d;
#pragma unroll
        for (int step = 1; step < 8; step *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
        if (token < tokens && chunk < chunks)
            *(char4*)(q + (long long)token * k + chunk * CHUNK + (lane & 7) * 4) = make_char4(a, b, c, d);
        if ((lane & 7) == 0) {
            float s = __fdiv_rn(largest, 127.f);
            scales[lane >> 3][here] = s;
            totals[lane >> 3][here] = __fmul_rn(s, (float)sum);
        }
        // @end
    }
    __syncthreads();
    // @region planes
    // The first four warps store the scales of a chunk each, the others the totals.
    int token = token0 + lane, to = chunk0 + (warp & (CHUNKS - 1));
    if (token < tokens && to < chunks) {
        float* plane = warp < CHUNKS ? scale : total;
        plane[(long long)to * tokens + token] = (warp < CHUNKS ? scales : totals)[warp & (CHUNKS - 1)][lane];
    }
    // @end
}
