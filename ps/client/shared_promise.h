// A copyable promise for callbacks of which the first decides. A call to several servers fails with
// the first error, and later answers change nothing.
// Thread rule: any thread.
// Invariant: the future completes once.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/trace/trace.h"
#include "rpc/future.h"

namespace tandem::ps {

template <class T>
class SharedPromise {
 public:
  // `span` ends when the promise is fulfilled.
  explicit SharedPromise(const ConcurrentSpan& span = {}) { state_->span = span; }

  const rpc::Future<T>& future() const { return state_->future; }
  // The first Set wins; later ones do nothing.
  void Set(absl::StatusOr<T> value) const {
    if (state_->taken.exchange(true)) return;
    state_->span.End();
    state_->promise.Set(std::move(value));
  }

 private:
  struct State {
    rpc::Promise<T> promise;
    const rpc::Future<T> future = promise.future();
    ConcurrentSpan span;
    std::atomic<bool> taken{false};
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace tandem::ps
