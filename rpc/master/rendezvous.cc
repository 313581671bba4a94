#include "rpc/master/rendezvous.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace tandem::rpc {
namespace {

// Removes the waiters that `done` picks from every list of `waiting`, and answers each with
// `status(key)`.
template <class Map, class Done, class Status>
void AnswerWhere(Map& waiting, const Done& done, const Status& status,
                 std::vector<Rendezvous::Answer>* answers) {
  for (auto it = waiting.begin(); it != waiting.end();) {
    auto& [key, waiters] = *it;
    std::erase_if(waiters, [&](const auto& waiter) {
      if (!done(waiter)) return false;
      answers->push_back({waiter.call, status(key), {}});
      return true;
    });
    it = waiters.empty() ? waiting.erase(it) : std::next(it);
  }
}

}  // namespace

absl::Status Rendezvous::CheckWaiter(const std::string& key) const {
  RETURN_IF_ERROR(CheckStoreKey(key));
  if (num_waiting_ < kMaxWaiting) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("store: ", kMaxWaiting, " calls wait already"));
}

absl::StatusOr<std::vector<Rendezvous::Answer>> Rendezvous::Set(const std::string& key,
                                                                const std::string& value) {
  RETURN_IF_ERROR(contents_.Set(key, value));
  std::vector<Answer> answers;
  if (auto node = getters_.extract(key); !node.empty()) {
    for (const Waiter& waiter : node.mapped())
      answers.push_back({waiter.call, absl::OkStatus(), value});
  }
  num_waiting_ -= answers.size();
  return answers;
}

std::vector<Rendezvous::Answer> Rendezvous::Get(uint64_t call, const std::string& key,
                                                double deadline_seconds) {
  if (const std::string* value = contents_.Find(key); value != nullptr)
    return {{call, absl::OkStatus(), *value}};
  if (absl::Status refused = CheckWaiter(key); !refused.ok())
    return {{call, std::move(refused), {}}};
  getters_[key].push_back({call, deadline_seconds, 0});
  ++num_waiting_;
  return {};
}

absl::StatusOr<std::vector<Rendezvous::Answer>> Rendezvous::Add(const std::string& key,
                                                                int64_t amount, int64_t* sum) {
  ASSIGN_OR_RETURN(*sum, contents_.Add(key, amount));
  std::vector<Answer> answers;
  if (auto it = counter_waiters_.find(key); it != counter_waiters_.end()) {
    std::erase_if(it->second, [&](const Waiter& waiter) {
      if (waiter.value > *sum) return false;
      answers.push_back({waiter.call, absl::OkStatus(), {}});
      return true;
    });
    if (it->second.empty()) counter_waiters_.erase(it);
  }
  num_waiting_ -= answers.size();
  return answers;
}

std::vector<Rendezvous::Answer> Rendezvous::WaitCounter(uint64_t call, const std::string& key,
                                                        int64_t value, double deadline_seconds) {
  if (contents_.Counter(key) >= value) return {{call, absl::OkStatus(), {}}};
  if (absl::Status refused = CheckWaiter(key); !refused.ok())
    return {{call, std::move(refused), {}}};
  counter_waiters_[key].push_back({call, deadline_seconds, value});
  ++num_waiting_;
  return {};
}

std::vector<Rendezvous::Answer> Rendezvous::Expire(double now_seconds) {
  std::vector<Answer> answers;
  auto expired = [&](const Waiter& waiter) { return waiter.deadline <= now_seconds; };
  auto status = [](const std::string& key) {
    return absl::DeadlineExceededError(absl::StrCat("store: \"", key, "\" is not there yet"));
  };
  AnswerWhere(getters_, expired, status, &answers);
  AnswerWhere(counter_waiters_, expired, status, &answers);
  num_waiting_ -= answers.size();
  return answers;
}

std::vector<Rendezvous::Answer> Rendezvous::FailAll(const absl::Status& reason) {
  std::vector<Answer> answers;
  auto all = [](const Waiter&) { return true; };
  auto status = [&](const std::string&) { return reason; };
  AnswerWhere(getters_, all, status, &answers);
  AnswerWhere(counter_waiters_, all, status, &answers);
  num_waiting_ -= answers.size();
  return answers;
}

}  // namespace tandem::rpc
