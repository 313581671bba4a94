#include "rpc/store/store.h"

#include "absl/strings/str_cat.h"

namespace tandem::rpc {

absl::Status MemoryStore::Set(const std::string& key, const std::string& value) {
  absl::MutexLock lock(&mutex_);
  values_[key] = value;
  return absl::OkStatus();
}

absl::StatusOr<std::string> MemoryStore::Get(const std::string& key, absl::Time deadline) {
  absl::MutexLock lock(&mutex_);
  auto present = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return values_.count(key) > 0; };
  if (!mutex_.AwaitWithDeadline(absl::Condition(&present), deadline)) {
    return absl::DeadlineExceededError(absl::StrCat("store: nobody set \"", key, "\" before the deadline"));
  }
  return values_[key];
}

absl::StatusOr<int64_t> MemoryStore::Add(const std::string& key, int64_t amount) {
  absl::MutexLock lock(&mutex_);
  return counters_[key] += amount;
}

absl::Status MemoryStore::Wait(const std::string& key, int64_t value, absl::Time deadline) {
  absl::MutexLock lock(&mutex_);
  auto reached = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return counters_[key] >= value; };
  if (!mutex_.AwaitWithDeadline(absl::Condition(&reached), deadline)) {
    return absl::DeadlineExceededError(absl::StrCat("store: counter \"", key, "\" is ", counters_[key],
                                                    " at the deadline, not ", value));
  }
  return absl::OkStatus();
}

}  // namespace tandem::rpc
