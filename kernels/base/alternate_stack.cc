#include "kernels/base/alternate_stack.h"

#include <csignal>
#include <cstddef>
#include <sys/mman.h>
#include <unistd.h>

namespace tandem {

namespace {

class AlternateStack {
 public:
  AlternateStack() {
    stack_t present{};
    if (sigaltstack(nullptr, &present) != 0 || (present.ss_flags & SS_DISABLE) == 0) return;
    void* memory = mmap(nullptr, kBytes + FrameBytes(), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (memory == MAP_FAILED) return;  // only a profiler needs the stack
    stack_.ss_sp = memory;
    stack_.ss_size = kBytes + FrameBytes();
    sigaltstack(&stack_, nullptr);
  }
  ~AlternateStack() {
    if (stack_.ss_sp == nullptr) return;
    const stack_t none{.ss_sp = nullptr, .ss_flags = SS_DISABLE, .ss_size = 0};
    sigaltstack(&none, nullptr);
    munmap(stack_.ss_sp, stack_.ss_size);
  }
  AlternateStack(const AlternateStack&) = delete;
  AlternateStack& operator=(const AlternateStack&) = delete;

 private:
  static constexpr size_t kBytes = 64 << 10;  // for the handler itself
  // The kernel's signal frame holds all vector registers, 11 KB with AMX.
  static size_t FrameBytes() {
    const long bytes = sysconf(_SC_MINSIGSTKSZ);
    return bytes > 0 ? static_cast<size_t>(bytes) : 16 << 10;
  }

  stack_t stack_{};
};

}  // namespace

void EnsureAlternateStack() { thread_local const AlternateStack stack; }

}  // namespace tandem
