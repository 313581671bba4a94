#include "rpc/master/rendezvous.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace tandem::rpc {
namespace {

// Takes the waiters that `done` picks out of every list of `waiting` and answers each with `status(key)`.
template <class Map, class Done, class Status>
void AnswerWhere(Map& waiting, const Done& done, const Status& status, std::vector<Rendezvous::Answer>* answers) {
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

std::vector<Rendezvous::Answer> Rendezvous::Set(const std::string& key, const std::string& value) {
  values_[key] = value;
  std::vector<Answer> answers;
  if (auto node = getters_.extract(key); !node.empty()) {
    for (const Waiter& waiter : node.mapped()) answers.push_back({waiter.call, absl::OkStatus(), value});
  }
  return answers;
}

std::vector<Rendezvous::Answer> Rendezvous::Get(uint64_t call, const std::string& key, double deadline_seconds) {
  if (auto it = values_.find(key); it != values_.end()) return {{call, absl::OkStatus(), it->second}};
  getters_[key].push_back({call, deadline_seconds, 0});
  return {};
}

std::vector<Rendezvous::Answer> Rendezvous::Add(const std::string& key, int64_t amount, int64_t* sum) {
  int64_t& counter = counters_[key];
  counter = *sum = static_cast<int64_t>(static_cast<uint64_t>(counter) + static_cast<uint64_t>(amount));
  std::vector<Answer> answers;
  if (auto it = counter_waiters_.find(key); it != counter_waiters_.end()) {
    std::erase_if(it->second, [&](const Waiter& waiter) {
      if (waiter.value > *sum) return false;
      answers.push_back({waiter.call, absl::OkStatus(), {}});
      return true;
    });
    if (it->second.empty()) counter_waiters_.erase(it);
  }
  return answers;
}

std::vector<Rendezvous::Answer> Rendezvous::WaitCounter(uint64_t call, const std::string& key, int64_t value,
                                                        double deadline_seconds) {
  const auto it = counters_.find(key);
  if ((it == counters_.end() ? 0 : it->second) >= value) return {{call, absl::OkStatus(), {}}};
  counter_waiters_[key].push_back({call, deadline_seconds, value});
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
  return answers;
}

std::vector<Rendezvous::Answer> Rendezvous::FailAll(const absl::Status& reason) {
  std::vector<Answer> answers;
  auto all = [](const Waiter&) { return true; };
  auto status = [&](const std::string&) { return reason; };
  AnswerWhere(getters_, all, status, &answers);
  AnswerWhere(counter_waiters_, all, status, &answers);
  return answers;
}

}  // namespace tandem::rpc
