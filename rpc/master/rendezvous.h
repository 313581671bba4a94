// The master's side of the rendezvous store: values, counters and the calls that wait for them.
// Pure, like Membership: calls are numbers, the time is an argument, answers come out.
// Thread rule: one thread at a time. Invariant: every waiting call is answered exactly once:
// satisfied, expired or failed.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rpc/store/contents.h"

namespace tandem::rpc {

class Rendezvous {
 public:
  struct Answer {
    uint64_t call = 0;
    absl::Status status;
    std::string value;  // for a Get
  };

  // The most calls that may wait at a time.
  static constexpr size_t kMaxWaiting = 4096;

  // Set and Add return the answers to waiting calls, or the error of StoreContents.
  absl::StatusOr<std::vector<Answer>> Set(const std::string& key, const std::string& value);
  // `sum` receives the counter after the addition.
  absl::StatusOr<std::vector<Answer>> Add(const std::string& key, int64_t amount, int64_t* sum);
  // Get and WaitCounter answer InvalidArgument if the key is too long, ResourceExhausted if too
  // many calls wait.
  std::vector<Answer> Get(uint64_t call, const std::string& key, double deadline_seconds);
  std::vector<Answer> WaitCounter(uint64_t call, const std::string& key, int64_t value,
                                  double deadline_seconds);

  // Answers DeadlineExceeded to every call whose deadline has passed.
  std::vector<Answer> Expire(double now_seconds);
  std::vector<Answer> FailAll(const absl::Status& reason);

 private:
  struct Waiter {
    uint64_t call = 0;
    double deadline = 0;
    int64_t value = 0;  // for a counter
  };
  // Ok if another call may wait for the key.
  absl::Status CheckWaiter(const std::string& key) const;

  StoreContents contents_;
  size_t num_waiting_ = 0;
  std::map<std::string, std::vector<Waiter>> getters_;
  std::map<std::string, std::vector<Waiter>> counter_waiters_;
};

}  // namespace tandem::rpc
