// Bounds what a server's connections hold for requests. gRPC compares a message's length with its limit when the whole message is there, so the
// bytes of messages that are not whole yet are bounded here, over all calls: gRPC's resource quota breaks off calls that want more
// (RESOURCE_EXHAUSTED). Whole requests, which handlers may keep for long, are counted and bounded apart.
// Thread rule: any thread.
#pragma once

#include <grpcpp/resource_quota.h>

#include <cstddef>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

namespace tandem::rpc {

// Of all messages that are not whole yet: a few of the largest.
inline constexpr size_t kMaxUnfinishedBytes = size_t{256} << 20;
// Besides, what a stream's sender may have on its way while nobody reads (kLookaheadBytes), and gRPC's own.
inline constexpr size_t kStreamBytes = size_t{8} << 20;
// And what a whole request may keep from being freed beside itself: the rest of the slice in which it came.
inline constexpr size_t kSliceBytes = size_t{64} << 10;

class RequestMemory : public std::enable_shared_from_this<RequestMemory> {
 public:
  explicit RequestMemory(size_t max_held_bytes);

  const grpc::ResourceQuota& quota() const { return quota_; }
  void AddStream();
  void RemoveStream();
  // Counts a whole request until the last copy of the result has gone. ResourceExhausted if too much is held already.
  absl::StatusOr<std::shared_ptr<const void>> Hold(size_t num_bytes);

 private:
  void Release(size_t num_bytes);
  // The quota only grows: to shrink it while memory is on its way back would break off somebody's call.
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
