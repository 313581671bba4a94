// The rendezvous store: small values under string keys, shared by all members of a job. Process
// groups meet through the store. Implementations: the master's (rpc/master/client), and MemoryStore
// for ranks that are threads of one process.
// Thread rule: all methods from any thread. Every wait has a deadline.
#pragma once

#include <cstdint>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "rpc/store/contents.h"

namespace tandem::rpc {

class Store {
 public:
  virtual ~Store() = default;
  // InvalidArgument if key or value is too long, ResourceExhausted if the store is full
  // (rpc/store/contents.h).
  virtual absl::Status Set(const std::string& key, const std::string& value) = 0;
  // Waits until the key exists. DeadlineExceeded names the key.
  virtual absl::StatusOr<std::string> Get(const std::string& key, absl::Time deadline) = 0;
  // Adds to a counter (0 if absent) and returns the new value. InvalidArgument if the sum overflows
  // 64 bits. ResourceExhausted like Set.
  virtual absl::StatusOr<int64_t> Add(const std::string& key, int64_t amount) = 0;
  // Waits until the counter is at least `value`.
  virtual absl::Status Wait(const std::string& key, int64_t value, absl::Time deadline) = 0;
};

class MemoryStore : public Store {
 public:
  absl::Status Set(const std::string& key, const std::string& value) override;
  absl::StatusOr<std::string> Get(const std::string& key, absl::Time deadline) override;
  absl::StatusOr<int64_t> Add(const std::string& key, int64_t amount) override;
  absl::Status Wait(const std::string& key, int64_t value, absl::Time deadline) override;

 private:
  absl::Mutex mutex_;
  StoreContents contents_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem::rpc
