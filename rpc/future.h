// A value that arrives later, exactly once: a T, or a Status that says why not. Completing a
// promise twice is a bug. Dropping an unfulfilled promise resolves its future with Cancelled, so
// nobody waits forever on a closed owner.
// Thread rule: any thread may complete, wait or attach. Callbacks run on the completing thread, or
// at once if the future is ready.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "kernels/base/check.h"

namespace tandem::rpc {

struct Done {};  // the value of a future that only signals completion

template <class T>
class Future {
 public:
  using Callback = std::function<void(const absl::StatusOr<T>&)>;

  Future() = default;  // not valid() until assigned
  static Future Ready(absl::StatusOr<T> value) {
    Future future;
    future.state_ = std::make_shared<State>();
    future.state_->value = std::move(value);
    return future;
  }

  bool valid() const { return state_ != nullptr; }
  bool ready() const {
    absl::MutexLock lock(&state_->mutex);
    return state_->value.has_value();
  }

  // The result, or DeadlineExceeded (the operation goes on). Copies T: wait once, or make T cheap
  // to copy.
  absl::StatusOr<T> Wait(absl::Time deadline) const {
    absl::MutexLock lock(&state_->mutex);
    auto ready = [this] { return state_->value.has_value(); };
    if (!state_->mutex.AwaitWithDeadline(absl::Condition(&ready), deadline)) {
      return absl::DeadlineExceededError("no answer before the deadline");
    }
    return *state_->value;
  }

  void OnReady(Callback callback) const {
    {
      absl::MutexLock lock(&state_->mutex);
      if (!state_->value.has_value()) {
        state_->callbacks.push_back(std::move(callback));
        return;
      }
    }
    callback(*state_->value);
  }

 private:
  template <class>
  friend class Promise;
  struct State {
    absl::Mutex mutex;
    std::optional<absl::StatusOr<T>> value;
    std::vector<Callback> callbacks;
  };
  std::shared_ptr<State> state_;
};

// Movable, not copyable. Fulfil a promise once.
template <class T>
class Promise {
 public:
  Promise() { future_.state_ = std::make_shared<typename Future<T>::State>(); }
  Promise(Promise&& other) noexcept : future_(std::move(other.future_)) {
    other.future_.state_ = nullptr;
  }
  Promise& operator=(Promise&& other) noexcept {
    if (this != &other) {
      Abandon();
      future_ = std::move(other.future_);
      other.future_.state_ = nullptr;
    }
    return *this;
  }
  ~Promise() { Abandon(); }

  Future<T> future() const { return future_; }

  void Set(absl::StatusOr<T> value) {
    auto state = std::move(future_.state_);
    TANDEM_CHECK(state != nullptr) << "a promise was fulfilled twice";
    std::vector<typename Future<T>::Callback> callbacks;
    {
      absl::MutexLock lock(&state->mutex);
      state->value = std::move(value);
      callbacks.swap(state->callbacks);
    }
    for (auto& callback : callbacks) callback(*state->value);
  }

 private:
  void Abandon() {
    if (future_.state_ != nullptr) Set(absl::CancelledError("the operation's owner was closed"));
  }
  Future<T> future_;
};

}  // namespace tandem::rpc
