// A call whose answer a thread waits for.
// Thread rule: one thread waits.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "rpc/future.h"
#include "trainer/remote/host.h"

namespace tandem::remote {

// A promise for callbacks. It is copyable, and only its first Set takes effect.
class AnswerPromise {
 public:
  const rpc::Future<rpc::Payload>& future() const { return state_->future; }
  void Set(absl::StatusOr<rpc::Payload> value) const {
    if (!state_->taken.exchange(true)) state_->promise.Set(std::move(value));
  }

 private:
  struct State {
    rpc::Promise<rpc::Payload> promise;
    const rpc::Future<rpc::Payload> future = promise.future();
    std::atomic<bool> taken{false};
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

inline rpc::Future<rpc::Payload> StartCall(Host& host, const std::string& address,
                                           const char* method, rpc::Payload request,
                                           absl::Time deadline, std::string what) {
  AnswerPromise promise;
  host.Call(address, method, std::move(request), deadline, std::move(what),
            [promise](absl::StatusOr<rpc::Payload> reply) { promise.Set(std::move(reply)); });
  return promise.future();
}

}  // namespace tandem::remote
