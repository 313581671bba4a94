// The answers to a stream's messages, which handlers give in any order and which leave in that of the messages. Private to rpc/.
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
  // Messages whose answers have not been taken.
  size_t size() const { return answers_.size(); }
  // The next message's number, to be answered once.
  uint64_t Expect() {
    answers_.emplace_back();
    return first_ + answers_.size() - 1;
  }
  void Give(uint64_t number, absl::StatusOr<Payload> answer) { answers_[number - first_] = std::move(answer); }
  // Whether the next answer in order is there.
  bool ready() const { return !answers_.empty() && answers_.front().has_value(); }
  // REQUIRES: ready().
  absl::StatusOr<Payload> Take() {
    absl::StatusOr<Payload> next = *std::move(answers_.front());
    answers_.pop_front();
    ++first_;
    return next;
  }

 private:
  std::deque<std::optional<absl::StatusOr<Payload>>> answers_;  // of the messages from first_ on
  uint64_t first_ = 0;
};

}  // namespace tandem::rpc
