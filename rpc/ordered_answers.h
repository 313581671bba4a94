// The answers to a stream's messages. Handlers give answers in any order; answers leave in the
// order of the messages. Private to rpc/.
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "rpc/payload.h"

namespace tandem::rpc {

class OrderedAnswers {
 public:
  // The number of messages whose answers are not taken yet.
  size_t size() const { return answers_.size(); }
  // Returns the number of the next message. Give its answer once.
  uint64_t Expect() {
    answers_.emplace_back();
    return first_ + answers_.size() - 1;
  }
  void Give(uint64_t number, absl::StatusOr<Payload> answer) {
    answers_[number - first_] = std::move(answer);
  }
  // True if the next answer in order is there.
  bool ready() const { return !answers_.empty() && answers_.front().has_value(); }
  // REQUIRES: ready().
  absl::StatusOr<Payload> Take() {
    absl::StatusOr<Payload> next = *std::move(answers_.front());
    answers_.pop_front();
    ++first_;
    return next;
  }

 private:
  std::deque<std::optional<absl::StatusOr<Payload>>> answers_;  // from message first_ on
  uint64_t first_ = 0;
};

}  // namespace tandem::rpc
