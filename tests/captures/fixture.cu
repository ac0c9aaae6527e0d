// Small kernels whose instruction counts are known by construction, recorded by record.sh.
// Usage: fixture SCENARIO   (kinds | many | ranges | graph)
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <nvtx3/nvToolsExt.h>

#define CHECK(call)                                                                        \
  do {                                                                                     \
    cudaError_t err_ = (call);                                                                \
    if (err_ != cudaSuccess) {                                                                \
      std::fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(err_));       \
      std::exit(1);                                                                        \
    }                                                                                      \
  } while (0)

__global__ void saxpy(int n, float a, const float* __restrict__ x, float* __restrict__ y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}

// Loads of every width, one each per thread, then stores of every width.
__global__ void widths(const uint8_t* __restrict__ in, uint8_t* __restrict__ out) {
  __shared__ alignas(16) uint8_t tile[256 * 32];
  size_t t = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  const uint8_t* p = in + t * 64;
  uint8_t b = *(const volatile uint8_t*)(p);
  uint16_t h = *(const volatile uint16_t*)(p + 2);
  uint32_t w = *(const volatile uint32_t*)(p + 4);
  uint2 d = *(const uint2*)(p + 8);
  uint4 q = *(const uint4*)(p + 16);
  uint4* s = (uint4*)(tile + threadIdx.x * 32);
  s[0] = q;
  unsigned dst = (unsigned)__cvta_generic_to_shared(s + 1);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(dst), "l"(p + 32) : "memory");
  asm volatile("cp.async.commit_group;\ncp.async.wait_group 0;" ::: "memory");
  __syncthreads();
  uint4 r = ((uint4*)tile)[(threadIdx.x * 2 + 3) & 511];
  uint8_t* o = out + t * 64;
  *(volatile uint8_t*)(o) = b;
  *(volatile uint16_t*)(o + 2) = h;
  *(volatile uint32_t*)(o + 4) = w;
  *(uint2*)(o + 8) = d;
  *(uint4*)(o + 16) = make_uint4(q.x + r.x, q.y + r.y, q.z + r.z, q.w + r.w);
}

// A fixed number of warp-level matrix instructions of each shape: LOOPS of each, per warp.
constexpr int LOOPS = 64;
__global__ void mma_mix(int* out) {
  unsigned a0 = threadIdx.x, a1 = a0 + 1, a2 = a0 + 2, a3 = a0 + 3, b0 = a0 + 4, b1 = a0 + 5;
  int i0 = 0, i1 = 0, i2 = 0, i3 = 0, j0 = 0, j1 = 0, j2 = 0, j3 = 0;
  float f0 = 0, f1 = 0, f2 = 0, f3 = 0, g0 = 0, g1 = 0, g2 = 0, g3 = 0;
  double d0 = 0, d1 = 0, da = 1.0, db = 2.0;
#pragma unroll 1
  for (int k = 0; k < LOOPS; ++k) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"
                 : "+r"(i0), "+r"(i1), "+r"(i2), "+r"(i3) : "r"(a0), "r"(a1), "r"(b0));
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                 : "+r"(j0), "+r"(j1), "+r"(j2), "+r"(j3) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                 : "+f"(f0), "+f"(f1), "+f"(f2), "+f"(f3) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                 : "+f"(g0), "+f"(g1), "+f"(g2), "+f"(g3) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1},{%2},{%3},{%0,%1};"
                 : "+d"(d0), "+d"(d1) : "d"(da), "d"(db));
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] =
      i0 + i1 + i2 + i3 + j0 + j1 + j2 + j3 + (int)(f0 + f1 + f2 + f3 + g0 + g1 + g2 + g3 + d0 + d1);
}

// An array indexed at run time lives in local memory: LDL and STL.
__global__ void local_array(const int* __restrict__ idx, int* __restrict__ out) {
  int a[64];
  int t = blockIdx.x * blockDim.x + threadIdx.x;
#pragma unroll 1
  for (int i = 0; i < 64; ++i) a[(idx[i & 31] + i) & 63] = t ^ i;
  out[t] = a[idx[t & 31] & 63];
}

// One bulk copy (sm_90) per block, waited for on an mbarrier.
__global__ void bulk_copy(const float* __restrict__ in, float* __restrict__ out) {
#if __CUDA_ARCH__ >= 900
  __shared__ alignas(128) float tile[1024];
  __shared__ alignas(8) uint64_t bar;
  unsigned mb = (unsigned)__cvta_generic_to_shared(&bar), dst = (unsigned)__cvta_generic_to_shared(tile);
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(mb) : "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(mb), "r"(4096) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(dst),
                 "l"(in + blockIdx.x * 1024), "r"(4096), "r"(mb) : "memory");
  }
  __syncthreads();
  asm volatile("{\n.reg .pred P;\nW: mbarrier.try_wait.parity.shared::cta.b64 P, [%0], 0;\n@P bra D;\nbra W;\nD:\n}" ::"r"(mb) : "memory");
  for (int i = threadIdx.x; i < 1024; i += blockDim.x) out[blockIdx.x * 1024 + i] = tile[i] * 2.0f;
#endif
}

int main(int argc, char** argv) {
  const char* mode = argc > 1 ? argv[1] : "kinds";
  const int n = 1 << 22;
  float *x, *y;
  uint8_t *in, *out;
  CHECK(cudaMalloc(&x, n * sizeof(float)));
  CHECK(cudaMalloc(&y, n * sizeof(float)));
  CHECK(cudaMalloc(&in, 64 << 20));
  CHECK(cudaMalloc(&out, 64 << 20));
  CHECK(cudaMemset(x, 0, n * sizeof(float)));
  CHECK(cudaMemset(y, 0, n * sizeof(float)));
  CHECK(cudaMemset(in, 1, 64 << 20));
  nvtxDomainHandle_t domain = nvtxDomainCreateA("cyinst");
  auto push = [&](const char* name) {
    nvtxEventAttributes_t at{};
    at.version = NVTX_VERSION;
    at.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    at.messageType = NVTX_MESSAGE_TYPE_ASCII;
    at.message.ascii = name;
    nvtxDomainRangePushEx(domain, &at);
  };
  if (!std::strcmp(mode, "kinds")) {
    nvtxRangePushA("step");
    push("saxpy.large");
    saxpy<<<n / 256, 256>>>(n, 2.0f, x, y);
    nvtxDomainRangePop(domain);
    push("widths");
    widths<<<2048, 256>>>(in, out);
    nvtxDomainRangePop(domain);
    nvtxRangeId_t id = nvtxRangeStartA("tensor");
    mma_mix<<<528, 128>>>((int*)out);
    nvtxRangeEnd(id);
    local_array<<<1056, 128>>>((const int*)in, (int*)out);
    bulk_copy<<<2048, 128>>>((const float*)in, (float*)out);
    nvtxRangePop();
    saxpy<<<1, 32>>>(32, 2.0f, x, y);
  } else if (!std::strcmp(mode, "many")) {
    for (int i = 0; i < 8; ++i) {
      int m = 1024 << i;
      saxpy<<<m / 256, 256>>>(m, 2.0f, x, y);
      widths<<<1 << i, 256>>>(in, out);
    }
  } else if (!std::strcmp(mode, "ranges")) {
    nvtxRangePushA("step");
    saxpy<<<n / 256, 256>>>(n, 2.0f, x, y);
    widths<<<2048, 256>>>(in, out);
    CHECK(cudaDeviceSynchronize());
    nvtxRangePop();
  } else if (!std::strcmp(mode, "graph")) {
    cudaStream_t s;
    cudaGraph_t g;
    cudaGraphExec_t e;
    CHECK(cudaStreamCreate(&s));
    CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    saxpy<<<n / 256, 256, 0, s>>>(n, 2.0f, x, y);
    saxpy<<<n / 256, 256, 0, s>>>(n, 3.0f, x, y);
    CHECK(cudaStreamEndCapture(s, &g));
    CHECK(cudaGraphInstantiate(&e, g, 0));
    CHECK(cudaGraphLaunch(e, s));
  } else {
    std::fprintf(stderr, "unknown scenario %s\n", mode);
    return 2;
  }
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
  return 0;
}
