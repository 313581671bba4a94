// Bounds the memory that a server's connections hold for requests. gRPC checks a message's length
// only when the whole message has arrived. So a gRPC resource quota bounds the bytes of unfinished
// messages over all calls; gRPC breaks off calls that want more (RESOURCE_EXHAUSTED). Whole
// requests, which handlers may keep for long, are counted and bounded separately.
// Thread rule: any thread.
#pragma once

#include <cstddef>
#include <grpcpp/resource_quota.h>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

namespace tandem::rpc {

// The quota of all unfinished messages: a few of the largest size.
inline constexpr size_t kMaxUnfinishedBytes = size_t{256} << 20;
// Extra quota per stream: bytes in flight while nobody reads (kLookaheadBytes), and gRPC's own
// memory.
inline constexpr size_t kStreamBytes = size_t{8} << 20;
// Extra quota per whole request: the rest of the slice in which it arrived, which the request keeps
// alive.
inline constexpr size_t kSliceBytes = size_t{64} << 10;

class RequestMemory : public std::enable_shared_from_this<RequestMemory> {
 public:
  explicit RequestMemory(size_t max_held_bytes);

  const grpc::ResourceQuota& quota() const { return quota_; }
  void AddStream();
  void RemoveStream();
  // Counts a whole request until the last copy of the result is gone. ResourceExhausted if handlers
  // would hold more than `max_held_bytes`.
  absl::StatusOr<std::shared_ptr<const void>> Hold(size_t num_bytes);

 private:
  void Release(size_t num_bytes);
  // The quota only grows. Shrinking the quota while memory is being returned would break off a
  // call.
  void Grow() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t max_held_bytes_;
  absl::Mutex mutex_;
  grpc::ResourceQuota quota_;
  size_t quota_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t held_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t num_held_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t num_streams_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace tandem::rpc
