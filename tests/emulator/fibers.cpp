// Runs the threads of a block as fibers. A fiber runs until it waits for its warp or its block. `shuffle` is the seed of
// the order in which warps and lanes go on (0: as they are numbered), so that a missing barrier shows.
#include "cuda.h"

#include <csetjmp>
#include <cstdio>
#include <functional>
#include <numeric>
#include <random>
#include <ucontext.h>
#include <vector>

Dim threadIdx, blockIdx, gridDim, blockDim;

namespace {

struct Copy { char* to; const char* from; int bytes; bool valid; };
struct Fiber {
  ucontext_t first;
  jmp_buf here;
  bool started;
  Wait waits_for;
  std::vector<char> stack;
  std::vector<std::vector<Copy>> groups;
  std::vector<Copy> open;
  int collectives;
};
struct Fragments { unsigned a[2], b; };
struct Range { const char* first; std::size_t bytes; };

Fiber fibers[1024];
Fragments fragments[2][1024];
jmp_buf scheduler;
ucontext_t unused;
int current;
bool late_copies;
std::function<void()> body;
std::vector<Range> readable;
char fault[200];

void report(const char* what, const void* at, std::size_t bytes) {
  if (!fault[0]) std::snprintf(fault, sizeof fault, "%s of %zu bytes at %p by thread %d", what, bytes, at, current);
}

void perform(const Copy& copy) {
  if (!copy.valid) std::memset(copy.to, 0, copy.bytes);
  else if (check_read(copy.from, copy.bytes)) std::memcpy(copy.to, copy.from, copy.bytes);
}

void enter() {
  body();
  wait_for(Wait::kEnd);
}

void resume(int thread) {
  current = thread;
  threadIdx = {thread, 0, 0};
  if (_setjmp(scheduler)) return;
  Fiber& fiber = fibers[thread];
  if (fiber.started) _longjmp(fiber.here, 1);
  fiber.started = true;
  setcontext(&fiber.first);
}

}  // namespace

void wait_for(Wait what) {
  Fiber& fiber = fibers[current];
  fiber.waits_for = what;
  if (!_setjmp(fiber.here)) _longjmp(scheduler, 1);
}

bool check_read(const void* from, std::size_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(from) % bytes) return report("misaligned read", from, bytes), false;
  const char* first = static_cast<const char*>(from);
  for (const Range& range : readable)
    if (first >= range.first && first + bytes <= range.first + range.bytes) return true;
  return report("read outside of every array", from, bytes), false;
}

void copy_async(void* to, const void* from, int bytes, bool valid) {
  if (reinterpret_cast<std::uintptr_t>(to) % bytes) report("misaligned copy", to, bytes);
  const Copy copy{static_cast<char*>(to), static_cast<const char*>(from), bytes, valid};
  if (late_copies) fibers[current].open.push_back(copy);
  else perform(copy);
}

void commit_copies() {
  Fiber& fiber = fibers[current];
  fiber.groups.push_back(std::move(fiber.open));
  fiber.open.clear();
}

void wait_for_copies(int pending) {
  auto& groups = fibers[current].groups;
  while (static_cast<int>(groups.size()) > pending) {
    for (const Copy& copy : groups.front()) perform(copy);
    groups.erase(groups.begin());
  }
}

// Row r of A, 16 bytes of k: lane r % 8 * 4 + k / 4, register r / 8, byte k % 4. Column n of B: lane n * 4 + k / 4. Element
// i of the result: row lane / 4 + i / 2 * 8, column lane % 4 * 2 + i % 2.
void mma_16x8x16(int (&dot)[4], const unsigned (&a)[2], unsigned b) {
  const int thread = current, warp = thread & ~31, lane = thread & 31;
  Fragments* all = fragments[fibers[thread].collectives++ & 1];
  all[thread] = {{a[0], a[1]}, b};
  wait_for(Wait::kWarp);
  auto byte = [](unsigned word, int i) { return static_cast<int>(static_cast<std::int8_t>(word >> (8 * i))); };
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    dot[i] = 0;
    for (int k = 0; k < 16; ++k)
      dot[i] += byte(all[warp + row % 8 * 4 + k / 4].a[row / 8], k % 4) * byte(all[warp + column * 4 + k / 4].b, k % 4);
  }
}

float half_to_float(unsigned bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const float size = exponent == 0    ? std::ldexp(static_cast<float>(mantissa), -24)
                     : exponent == 31 ? (mantissa ? NAN : INFINITY)
                                      : std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
  return bits >> 15 & 1 ? -size : size;
}

extern "C" void set_readable(int count, const char* const* first, const std::size_t* bytes) {
  readable.clear();
  for (int i = 0; i < count; ++i) readable.push_back({first[i], bytes[i]});
}

// Runs a grid of blocks along x and y; returns the first fault, or an empty text.
const char* run_grid(const int* grid, int threads, bool late, unsigned shuffle, std::function<void()> kernel) {
  body = std::move(kernel);
  late_copies = late;
  fault[0] = 0;
  gridDim = {grid[0], grid[1], 1};
  blockDim = {threads, 1, 1};
  std::mt19937 random(shuffle);
  std::vector<int> warps(threads / 32), lanes(32);
  std::iota(warps.begin(), warps.end(), 0);
  std::iota(lanes.begin(), lanes.end(), 0);
  for (int block = 0; block < grid[0] * grid[1]; ++block) {
    blockIdx = {block % grid[0], block / grid[0], 0};
    for (int i = 0; i < threads; ++i) {
      Fiber& fiber = fibers[i];
      fiber.stack.resize(64 << 10);
      fiber.started = false;
      fiber.groups.clear();
      fiber.open.clear();
      fiber.collectives = 0;
      getcontext(&fiber.first);
      fiber.first.uc_stack.ss_sp = fiber.stack.data();
      fiber.first.uc_stack.ss_size = fiber.stack.size();
      fiber.first.uc_link = &unused;
      makecontext(&fiber.first, enter, 0);
    }
    for (bool ended = false; !ended;) {
      if (shuffle) std::shuffle(warps.begin(), warps.end(), random);
      for (int warp : warps) {
        do {
          if (shuffle) std::shuffle(lanes.begin(), lanes.end(), random);
          for (int lane : lanes) resume(warp * 32 + lane);
          for (int lane : lanes)
            if (fibers[warp * 32 + lane].waits_for != fibers[warp * 32].waits_for) return "lanes of a warp diverged";
        } while (fibers[warp * 32].waits_for == Wait::kWarp);
        if (fibers[warp * 32].waits_for != fibers[warps[0] * 32].waits_for) return "warps diverged at a barrier";
      }
      ended = fibers[0].waits_for == Wait::kEnd;
    }
  }
  return fault;
}
