#include "rpc/request_memory.h"

#include "absl/strings/str_cat.h"

namespace tandem::rpc {
namespace {

constexpr size_t kQuotaStep = size_t{64} << 20;

}  // namespace

RequestMemory::RequestMemory(size_t max_held_bytes)
    : max_held_bytes_(max_held_bytes), quota_("tandem.rpc.Server") {
  absl::MutexLock lock(&mutex_);
  Grow();
}

void RequestMemory::Grow() {
  // gRPC slows connections down when four fifths of a quota are used. Held requests must not count,
  // so the quota grows by twice their bytes.
  const size_t wanted = kMaxUnfinishedBytes + num_streams_ * kStreamBytes +
                        2 * (held_bytes_ + num_held_ * kSliceBytes);
  if (wanted <= quota_bytes_) return;
  quota_bytes_ = (wanted + kQuotaStep - 1) / kQuotaStep * kQuotaStep;
  quota_.Resize(quota_bytes_);
}

void RequestMemory::AddStream() {
  absl::MutexLock lock(&mutex_);
  ++num_streams_;
  Grow();
}

void RequestMemory::RemoveStream() {
  absl::MutexLock lock(&mutex_);
  --num_streams_;
}

absl::StatusOr<std::shared_ptr<const void>> RequestMemory::Hold(size_t num_bytes) {
  absl::MutexLock lock(&mutex_);
  if (num_bytes > max_held_bytes_ - held_bytes_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("requests of ", held_bytes_, " bytes are held here already, one of ",
                     num_bytes, " more is above the limit of ", max_held_bytes_,
                     "; push less in a step, or to more servers"));
  }
  held_bytes_ += num_bytes;
  ++num_held_;
  Grow();
  const auto release = [self = shared_from_this(), num_bytes](const void*) {
    self->Release(num_bytes);
  };
  return std::shared_ptr<const void>(this, release);
}

void RequestMemory::Release(size_t num_bytes) {
  absl::MutexLock lock(&mutex_);
  held_bytes_ -= num_bytes;
  --num_held_;
}

}  // namespace tandem::rpc
