// Enough of CUDA to run kernels on the host, one block at a time, a fiber a thread; see fibers.cpp. It stands in for
// kernels/formats/ptx.cuh, too. Reads through __ldg and cp.async are checked for alignment and bounds.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

using std::max;
using std::min;

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
#define __builtin_assume(condition)

struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) float2 { float x, y; };
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

struct Dim { int x, y, z; };
extern Dim threadIdx, blockIdx, gridDim, blockDim;

// Arithmetic that is rounded once; compile with -ffp-contract=off.
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline unsigned atomicAdd(unsigned* to, unsigned value) { return *to += value, *to - value; }
float half_to_float(unsigned bits);

enum class Wait { kWarp, kBlock, kEnd };
void wait_for(Wait what);
inline void __syncthreads() { wait_for(Wait::kBlock); }

// Remembers the first wrong access; true when this one is right.
bool check_read(const void* from, std::size_t bytes);
template <class T>
T __ldg(const T* from) {
  T value{};
  if (check_read(from, sizeof(T))) std::memcpy(&value, from, sizeof(T));
  return value;
}

// cp.async: done at once, or as late as its wait allows.
void copy_async(void* to, const void* from, int bytes, bool valid);
inline char* shared_address(const void* p) { return static_cast<char*>(const_cast<void*>(p)); }
inline void copy_async_16(void* to, const void* from, bool valid) { copy_async(to, from, 16, valid); }
inline void copy_async_4(void* to, const void* from, bool valid) { copy_async(to, from, 4, valid); }
void commit_copies();
void wait_for_copies(int pending);
template <int PENDING>
void wait_copies() { wait_for_copies(PENDING); }

// mma.m16n8k16 of signed bytes, from the fragments that the PTX ISA documents for it.
void mma_16x8x16(int (&dot)[4], const unsigned (&a)[2], unsigned b);
