// Both expansions of the ladder over the same runs of 16 weights, compared on the device.
#include "q6k.cuh"

// `count` blocks, `pitch` bytes (a multiple of 16) from one to the next; a thread a run. `out` gets what the closed
// form made, int8 [count][256]; `differing` counts the runs where single bytes make something else.
extern "C" __global__ void __launch_bounds__(kThreads)
    q6k_expand_check(const u8* __restrict__ blocks, int count, int pitch, uint4* __restrict__ out,
                     unsigned* __restrict__ differing) {
  const int at = blockIdx.x * kThreads + threadIdx.x, j = at & 15;
  if (at >= count * 16) return;
  const u8* block = blocks + static_cast<long long>(at >> 4) * pitch;
  const Run run = run_of(j);
  const uint4 wide = expand_wide(load_16(block + run.nibbles), load_16(block + run.highs), run);
  const uint2 first = expand_bytes(block, run, 0), last = expand_bytes(block, run, 1);
  out[at] = wide;
  if (wide.x != first.x || wide.y != first.y || wide.z != last.x || wide.w != last.y) atomicAdd(differing, 1u);
}
