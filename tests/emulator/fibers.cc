#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <vector>

#include "tests/emulator/cuda_runtime.h"

// A block's threads as fibers: stacks of one system thread, switched by hand at barriers.
#if !defined(__x86_64__)
#error "the emulator's switch of stacks is written for x86-64"
#endif

extern "C" void tandem_switch_stacks(void** from, void* to);
asm(R"(
.text
.globl tandem_switch_stacks
.type tandem_switch_stacks, @function
tandem_switch_stacks:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size tandem_switch_stacks, .-tandem_switch_stacks
)");

namespace tandem::emulator {

namespace {

constexpr size_t kStackBytes = 128 << 10, kGuardBytes = 256;
constexpr unsigned char kPoison = 0xff, kGuard = 0xa5;

struct Copy {
  void* to;
  const void* from;  // null: zeros
  size_t bytes;
};

enum class Wait { NONE, WARP, BLOCK, DONE };

struct Fiber {
  std::unique_ptr<unsigned char[]> stack{new unsigned char[kStackBytes]};
  void* top = nullptr;
  Wait wait = Wait::NONE;
  unsigned exchanges = 0;
  std::vector<std::vector<Copy>> groups;
  std::vector<Copy> open;
};

struct Warp {
  alignas(64) unsigned char slots[2][32 * 64];
};

struct Block {
  std::vector<Fiber> fibers;  // reused from block to block
  std::vector<Warp> warps;
  std::vector<unsigned char> shared;
  unsigned count = 0, current = 0;
  void* scheduler = nullptr;
  const std::function<void()>* thread = nullptr;
  std::mt19937 random;  // with its one seed: a failure comes again
  std::vector<unsigned> order;
};

Block& TheBlock() {
  static Block* const block = new Block;
  return *block;
}

void SwitchToScheduler(Wait wait) {
  Block& block = TheBlock();
  Fiber& fiber = block.fibers[block.current];
  fiber.wait = wait;
  tandem_switch_stacks(&fiber.top, block.scheduler);
}

void RunThread() {
  (*TheBlock().thread)();
  Block& block = TheBlock();
  if (!block.fibers[block.current].open.empty() || !block.fibers[block.current].groups.empty())
    Stop("a thread ended before its copies");
  SwitchToScheduler(Wait::DONE);
  Stop("a fiber ran on after its end");
}

void Prepare(Fiber& fiber) {
  auto top = reinterpret_cast<uintptr_t>(fiber.stack.get() + kStackBytes) & ~uintptr_t{15};
  auto* slots = reinterpret_cast<void**>(top);
  *--slots = nullptr;  // aligns the stack at RunThread's entry as after a call
  *--slots = reinterpret_cast<void*>(&RunThread);
  for (int i = 0; i < 6; ++i) *--slots = nullptr;
  fiber.top = slots;
  fiber.wait = Wait::NONE;
  fiber.exchanges = 0;
}

void Resume(unsigned number) {
  Block& block = TheBlock();
  block.current = number;
  threadIdx = {number % blockDim.x, number / blockDim.x % blockDim.y,
               number / (blockDim.x * blockDim.y)};
  tandem_switch_stacks(&block.scheduler, block.fibers[number].top);
}

// Releases threads [begin, end) that wait for `what`, if none of them still runs or waits for less.
bool Release(unsigned begin, unsigned end, Wait what) {
  Block& block = TheBlock();
  bool some = false;
  for (unsigned t = begin; t < end; ++t) {
    const Wait wait = block.fibers[t].wait;
    if (wait != what && wait != Wait::DONE) return false;
    some |= wait == what;
  }
  for (unsigned t = begin; t < end; ++t) {
    if (block.fibers[t].wait == what) block.fibers[t].wait = Wait::NONE;
  }
  return some;
}

// Runs every runnable thread, in a new order each time. Warps that are held back this time do not
// run.
bool RunRound() {
  Block& block = TheBlock();
  block.order.resize(block.count);
  std::iota(block.order.begin(), block.order.end(), 0u);
  std::shuffle(block.order.begin(), block.order.end(), block.random);
  const uint32_t held_back = block.random();  // a bit for each of at most 32 warps
  bool progress = false;
  for (const unsigned t : block.order) {
    if (block.fibers[t].wait != Wait::NONE) continue;
    progress = true;
    if ((held_back >> t / 32 & 1) == 0) Resume(t);
  }
  return progress;
}

void RunBlock(size_t shared_bytes) {
  Block& block = TheBlock();
  block.shared.assign(shared_bytes + kGuardBytes, kPoison);
  std::memset(block.shared.data() + shared_bytes, kGuard, kGuardBytes);
  for (unsigned t = 0; t < block.count; ++t) Prepare(block.fibers[t]);
  for (;;) {
    bool progress = RunRound(), alive = false;
    for (unsigned w = 0; w < block.count; w += 32)
      progress |= Release(w, std::min(w + 32, block.count), Wait::WARP);
    progress |= Release(0, block.count, Wait::BLOCK);
    for (unsigned t = 0; t < block.count; ++t) alive |= block.fibers[t].wait != Wait::DONE;
    if (!alive) break;
    if (!progress) Stop("threads wait at different barriers");
  }
  for (size_t i = 0; i < kGuardBytes; ++i) {
    if (block.shared[shared_bytes + i] != kGuard) Stop("a kernel wrote behind its shared memory");
  }
}

}  // namespace

void Stop(const char* why) {
  std::fprintf(stderr, "emulator: %s; block (%u, %u, %u), thread (%u, %u, %u)\n", why, blockIdx.x,
               blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);
  std::abort();
}

void BlockBarrier() { SwitchToScheduler(Wait::BLOCK); }
void WarpBarrier() { SwitchToScheduler(Wait::WARP); }

// Two sets of slots alternate: a thread that refills one has passed a barrier after all threads
// have read it.
unsigned char* WarpSlots() {
  Block& block = TheBlock();
  return block.warps[block.current / 32].slots[block.fibers[block.current].exchanges++ % 2];
}

unsigned char* DynamicSharedMemory() {
  auto address = reinterpret_cast<uintptr_t>(TheBlock().shared.data());
  if (address % 16 != 0) Stop("shared memory is not aligned");
  return TheBlock().shared.data();
}

void QueueCopy(void* to, const void* from, size_t bytes) {
  TheBlock().fibers[TheBlock().current].open.push_back({to, from, bytes});
}

void CommitCopies() {
  Fiber& fiber = TheBlock().fibers[TheBlock().current];
  fiber.groups.push_back(std::move(fiber.open));
  fiber.open.clear();
}

void FinishCopies(int remaining) {
  Fiber& fiber = TheBlock().fibers[TheBlock().current];
  while (static_cast<int>(fiber.groups.size()) > remaining) {
    for (const Copy& copy : fiber.groups.front()) {
      if (copy.from == nullptr)
        std::memset(copy.to, 0, copy.bytes);
      else
        std::memcpy(copy.to, copy.from, copy.bytes);
    }
    fiber.groups.erase(fiber.groups.begin());
  }
}

size_t& SharedLimit(const void* kernel) {
  static std::mutex mutex;
  static auto* const limits = new std::map<const void*, size_t>;
  const std::lock_guard<std::mutex> lock(mutex);
  return limits->try_emplace(kernel, 48 << 10).first->second;
}

// Runs one grid at a time, whichever thread submits it: a kernel's shared declaration is one array
// for all grids.
void RunGrid(dim3 grid, dim3 block_size, size_t shared_bytes, const std::function<void()>& thread) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  Block& block = TheBlock();
  gridDim = grid;
  blockDim = block_size;
  block.count = block_size.x * block_size.y * block_size.z;
  if (block.fibers.size() < block.count) block.fibers.resize(block.count);
  block.warps.resize((block.count + 31) / 32);
  block.thread = &thread;
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        blockIdx = {x, y, z};
        RunBlock(shared_bytes);
      }
    }
  }
}

}  // namespace tandem::emulator
