// Splits the scratch of one attention task into arrays, and copies a head's rows into it.
// Thread rule: an Arena has one thread; TakeScratch takes the calling thread's scratch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/attention/task.h"
#include "kernels/cpu/vector/scratch.h"
#include "kernels/cpu/vector/vectorise.h"

namespace tandem::kernels {

// Splits memory into arrays that begin on cache lines. Without memory it is a dry run that counts
// the bytes.
class Arena {
 public:
  explicit Arena(char* memory = nullptr) : memory_(memory) {}
  template <class T>
  T* Take(int64_t count) {
    T* array = memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + used_);
    used_ += RoundUp(count * static_cast<int64_t>(sizeof(T)), kLineBytes);
    return array;
  }
  int64_t used() const { return used_; }

 private:
  static constexpr int64_t kLineBytes = 64;
  char* memory_;
  int64_t used_ = 0;
};

// Calls cut(arena) twice: first as a dry run, then with memory.
template <class Cut>
void TakeScratch(const Cut& cut) {
  Arena dry;
  cut(dry);
  Arena arena(Scratch<char>(ScratchSlot::TASK_A, dry.used()));
  cut(arena);
}

// Loads `rows` rows of a head from `token` on into rows of `to`, RoundUp(depth, kLanes) elements
// long.
template <class S>
void LoadHead(const AttentionProblem<S>& p, int64_t head, const TokenRows<const S>& from,
              int64_t token, int64_t rows, Compute<S>* to) {
  Vectorised([=, first = from.At(token, head, p.depth), stride = from.stride, depth = p.depth] {
    LoadRows(first, stride, rows, depth, RoundUp(depth, kLanes), to);
  });
}

}  // namespace tandem::kernels
