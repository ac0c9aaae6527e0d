// Every kind of result whose latency the hardware does not fix, each fed to arithmetic: what the compiler must guard
// with scoreboards. Compiled by tests/test_scoreboards.py, never run.

__device__ float global_store[32];

extern "C" __global__ void loads(const float *__restrict__ a, const float4 *__restrict__ b, const double *c, float *out,
                                 int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float4 v = b[i];
  double d = c[i];
  float x = a[i] * v.x + v.y;
  out[i] = x * v.z - v.w + (float)(d * d + 1.0);
}

// Software pipelining: the next tile is loaded while this one is used, so waits cross the loop's back edge.
extern "C" __global__ void pipelined(const float4 *__restrict__ a, float *out, int n, int stride) {
  __shared__ float4 tile[2][128];
  int t = threadIdx.x;
  float4 next = a[t];
  float sum = 0.f;
  for (int k = 0; k < n; k++) {
    tile[k & 1][t] = next;
    __syncthreads();
    next = a[t + (k + 1) * stride];
    float4 u = tile[k & 1][(t + 1) & 127];
    float4 w = tile[k & 1][(t + 33) & 127];
    sum += u.x * w.x + u.y * w.y + u.z * w.z + u.w * w.w;
  }
  out[t] = sum + next.x;
}

extern "C" __global__ void special(const float *a, float *out, int n) {
  int i = threadIdx.x;
  float x = a[i];
  out[i] = __sinf(x) * rsqrtf(x + 2.f) + exp2f(x) / __logf(x + 3.f);
  out[i + n] = sinf(x) + tanhf(x);
  out[i + 2 * n] = (float)((int)x / (n + i)) + (float)((long long)(x * 1e6f) % (long long)(n + 7));
}

extern "C" __global__ void doubles(const double *a, double *out) {
  int i = threadIdx.x;
  double s = a[i];
  for (int k = 1; k < 5; k++) s = s * a[i + k] + 1.0 / s;
  out[i] = sqrt(s);
}

extern "C" __global__ void exchanges(const int *a, int *out, int n) {
  __shared__ int bins[64];
  int i = threadIdx.x;
  if (i < 64) bins[i] = 0;
  __syncthreads();
  int v = a[i];
  for (int k = 16; k > 0; k >>= 1) v += __shfl_xor_sync(~0u, v, k);
  int old = atomicAdd(&bins[v & 63], 1);
  int seen = atomicAdd(&out[old & 7], v);
  int swapped = atomicCAS(&out[8], seen, old);
  unsigned ballot = __ballot_sync(~0u, swapped > n);
  __syncthreads();
  out[i + 16] = bins[i & 63] + swapped * __popc(ballot) + __ffs(v) + __clz(seen) + __brev(old);
  if (v > 3) atomicMax(&out[9], v);
}

// The two sides load different things into the same variable, and meet before it is used.
extern "C" __global__ void divergent(const int *a, const int *b, int *out, int n) {
  int i = threadIdx.x;
  int v;
  if (a[i] > n) {
    v = b[i] * 3;
    if (v & 1) v += b[v & 255];
  } else {
    v = a[i + n];
    while (v > 100) v = a[v & 1023] - 1;
  }
  switch (v & 7) {
    case 0: v += a[1]; break;
    case 1: v ^= b[2] + i; break;
    case 2: v = v * b[i + 3]; break;
    case 3: v -= a[v & 31]; break;
    case 4: v = __popc(v); break;
    case 5: v = v / (i + 1); break;
    default: v = min(v, a[5]); break;
  }
  out[i] = v;
}

__device__ __noinline__ float called(const float *a, int i) {
  float s = a[i];
  return s * a[i + 1] + sinf(s);
}

extern "C" __global__ void calls(const float *a, float *out, int n) {
  float s = 0.f;
  for (int k = 0; k < n; k++) s += called(a, threadIdx.x + k);
  out[threadIdx.x] = s + called(a, n);
}

extern "C" __global__ void local_array(const int *a, int *out, int n) {
  int keep[40];
  for (int k = 0; k < 40; k++) keep[k] = a[k * n];
  int s = 0;
  for (int k = 0; k < n; k++) s += keep[(k * 7 + a[k]) % 40];
  out[threadIdx.x] = s;
}

extern "C" __global__ void matrices(const unsigned *a, float *out) {
#if __CUDA_ARCH__ >= 800
  unsigned l = threadIdx.x;
  __shared__ unsigned tile[512];
  for (int k = 0; k < 4; k++) tile[l + k * 128] = a[l + k * 128];
  __syncthreads();
  float c0 = 0, c1 = 0, c2 = 0, c3 = 0;
  for (int k = 0; k < 8; k++) {
    unsigned x0, x1, x2, x3, at = (unsigned)__cvta_generic_to_shared(&tile[(l & 31) * 4 + k * 32]);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x0), "=r"(x1), "=r"(x2), "=r"(x3) : "r"(at));
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3) : "r"(x0), "r"(x1), "r"(x2), "r"(x3), "r"(x0), "r"(x2));
  }
  out[l * 4] = c0 + c1; out[l * 4 + 1] = c2; out[l * 4 + 2] = c3;
#else
  out[threadIdx.x] = a[threadIdx.x];
#endif
}
