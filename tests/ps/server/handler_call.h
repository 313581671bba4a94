// One message to a byte handler of an EmbeddingService, without a network, and its answer. At most
// one answer ever comes, however late.
// Thread rule: one thread asks; any thread may answer.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "kernels/base/check.h"
#include "ps/server/service.h"
#include "rpc/payload.h"

namespace tandem::ps {

class HandlerCall {
 public:
  using Method = void (EmbeddingService::*)(rpc::Payload, rpc::Reply);

  HandlerCall(EmbeddingService& service, Method method, rpc::Payload request) {
    (service.*method)(std::move(request), [state = state_](absl::StatusOr<rpc::Payload> reply) {
      absl::MutexLock lock(&state->mutex);
      TANDEM_CHECK(!state->answer.has_value()) << "a second answer";
      if (reply.ok())
        state->answer = std::string(reply->Flatten());
      else
        state->answer = reply.status();
    });
  }
  HandlerCall(EmbeddingService& service, Method method, std::string bytes)
      : HandlerCall(service, method, rpc::Payload(std::move(bytes))) {}

  bool answered() const {
    absl::MutexLock lock(&state_->mutex);
    return state_->answer.has_value();
  }
  // The size of the answer. 0 without an answer, or for an error.
  size_t answer_bytes() const {
    absl::MutexLock lock(&state_->mutex);
    return state_->answer.has_value() && state_->answer->ok() ? (*state_->answer)->size() : 0;
  }
  // Waits for the answer. Returns DeadlineExceeded if none comes.
  absl::StatusOr<std::string> Wait(absl::Duration timeout = absl::Seconds(20)) const {
    absl::MutexLock lock(&state_->mutex);
    const auto there = [this] { return state_->answer.has_value(); };
    if (!state_->mutex.AwaitWithTimeout(absl::Condition(&there), timeout))
      return absl::DeadlineExceededError("no answer");
    return *state_->answer;
  }

 private:
  struct State {
    absl::Mutex mutex;
    std::optional<absl::StatusOr<std::string>> answer;
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace tandem::ps
