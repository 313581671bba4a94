// The state that one step of one replica carries through forward and backward: stream, random seed,
// step, deadline, and a sticky status. The context is passed as an argument and never global.
// Thread rule: Fail and status from any thread; everything else from the step's thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "kernels/base/dtype.h"
#include "kernels/memory/stream.h"
#include "trainer/tensor/tensor.h"

namespace tandem {

class Context {
 public:
  struct Options {
    Stream* stream = nullptr;
    uint64_t seed = 0;
    uint64_t step = 0;     // counts from 1
    bool training = true;  // false: no dropout and no graph
    // The type of matrix products and of the activations between them. BF16 keeps the residual
    // stream, statistics, parameters and parameter gradients in f32.
    DType compute = DType::F32;
    absl::Time deadline = absl::InfiniteFuture();  // for every wait of the step
  };
  explicit Context(const Options& options) : options_(options) {}

  Stream& stream() const { return *options_.stream; }
  uint64_t seed() const { return options_.seed; }
  uint64_t step() const { return options_.step; }
  bool training() const { return options_.training; }
  DType compute() const { return options_.compute; }
  absl::Time deadline() const { return options_.deadline; }
  // Uninitialised memory on the device where the stream's kernels run.
  Tensor Empty(Shape shape, DType dtype) const {
    return Tensor::Empty(shape, dtype, stream().device());
  }

  // Keeps the first failure. Operations called after a failure return at once with unspecified
  // values; the optimizer step reports the failure.
  void Fail(absl::Status status) {
    absl::MutexLock lock(&mutex_);
    if (!status.ok() && status_.ok()) {
      status_ = std::move(status);
      failed_.store(true, std::memory_order_release);
    }
  }
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  absl::Status status() const {
    absl::MutexLock lock(&mutex_);
    return status_;
  }

  // Numbers graph nodes in the order of their creation, which fixes the order of the backward pass.
  uint64_t NextNode() { return next_node_++; }

 private:
  const Options options_;
  std::atomic<bool> failed_{false};
  mutable absl::Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_node_ = 0;
};

}  // namespace tandem
