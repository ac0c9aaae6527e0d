// What int8 mma.sync reaches with nothing else to do: 8 independent accumulators per warp, operands in registers.
template <int K>
__device__ __forceinline__ void multiply(int (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  if (K == 16)
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b[0]));
  else
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

template <int K>
__device__ void run(int* out, int turns) {
  // Operands differ by thread: a card at rest on zeros would clock higher than on data.
  unsigned a[4], b[2];
  for (int i = 0; i < 4; ++i) a[i] = (threadIdx.x + 7u * i) * 2654435761u;
  for (int i = 0; i < 2; ++i) b[i] = (threadIdx.x + 11u * i) * 2246822519u;
  int c[8][4] = {};
  for (int turn = 0; turn < turns; ++turn)
#pragma unroll
    for (int i = 0; i < 8; ++i) multiply<K>(c[i], a, b);
  int sum = 0;
  for (int i = 0; i < 8; ++i) sum += c[i][0] + c[i][1] + c[i][2] + c[i][3];
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

extern "C" __global__ void __launch_bounds__(256) int8_k16(int* out, int turns) { run<16>(out, turns); }
extern "C" __global__ void __launch_bounds__(256) int8_k32(int* out, int turns) { run<32>(out, turns); }
