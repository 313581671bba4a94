#include "rpc/store/store.h"

#include "absl/strings/str_cat.h"

namespace tandem::rpc {

absl::Status MemoryStore::Set(const std::string& key, const std::string& value) {
  absl::MutexLock lock(&mutex_);
  return contents_.Set(key, value);
}

absl::StatusOr<std::string> MemoryStore::Get(const std::string& key, absl::Time deadline) {
  absl::MutexLock lock(&mutex_);
  auto present = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return contents_.Find(key) != nullptr; };
  if (!mutex_.AwaitWithDeadline(absl::Condition(&present), deadline)) {
    return absl::DeadlineExceededError(
        absl::StrCat("store: nobody set \"", key, "\" before the deadline"));
  }
  return *contents_.Find(key);
}

absl::StatusOr<int64_t> MemoryStore::Add(const std::string& key, int64_t amount) {
  absl::MutexLock lock(&mutex_);
  return contents_.Add(key, amount);
}

absl::Status MemoryStore::Wait(const std::string& key, int64_t value, absl::Time deadline) {
  absl::MutexLock lock(&mutex_);
  auto reached = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return contents_.Counter(key) >= value; };
  if (!mutex_.AwaitWithDeadline(absl::Condition(&reached), deadline)) {
    return absl::DeadlineExceededError(absl::StrCat("store: counter \"", key, "\" is ",
                                                    contents_.Counter(key),
                                                    " at the deadline, not ", value));
  }
  return absl::OkStatus();
}

}  // namespace tandem::rpc
