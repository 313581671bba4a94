#include "rpc/grpc_bytes.h"

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>
#include <grpcpp/support/status.h>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tandem::rpc {
namespace {

constexpr size_t kCopyBelowBytes = 64;  // smaller slices are cheaper to copy than to count
constexpr size_t kMaxStatusTextBytes = 8000;

// gRPC's message for a call that a server's resource quota broke off (request_memory.h): HTTP/2's
// ENHANCE_YOUR_CALM. The quota picks any call, so the call was not refused and may be retried.
constexpr char kBrokenOff[] = "Received RST_STREAM with error code 11";

void ReleaseOwner(void* owner) { delete static_cast<std::shared_ptr<const void>*>(owner); }

grpc::Slice ToGrpcSlice(const Payload::Slice& slice) {
  if (slice.size < kCopyBelowBytes || slice.owner == nullptr)
    return grpc::Slice(slice.data, slice.size);
  return grpc::Slice(const_cast<char*>(slice.data), slice.size, &ReleaseOwner,
                     new std::shared_ptr<const void>(slice.owner));
}

}  // namespace

void ToByteBuffer(const Payload& payload, grpc::ByteBuffer* buffer) {
  std::vector<grpc::Slice> slices;
  slices.reserve(payload.slices().size());
  for (const Payload::Slice& slice : payload.slices()) slices.push_back(ToGrpcSlice(slice));
  grpc::ByteBuffer(slices.data(), slices.size()).Swap(buffer);
}

Payload FromByteBuffer(const grpc::ByteBuffer& buffer, std::shared_ptr<const void> held) {
  struct Owner {
    std::shared_ptr<const void> held;  // destroyed after the slices
    std::vector<grpc::Slice> slices;
  };
  Payload payload;
  if (!buffer.Valid()) return payload;
  auto owner = std::make_shared<Owner>();
  owner->held = std::move(held);
  const std::shared_ptr<std::vector<grpc::Slice>> slices(owner, &owner->slices);
  // Fails only for a corrupt compressed message, which then reads as empty; the parser reports the
  // missing fields.
  if (!buffer.Dump(slices.get()).ok()) return payload;
  for (const grpc::Slice& slice : *slices) payload.Append(slice.begin(), slice.size(), slices);
  return payload;
}

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  std::string text(status.message().data(), status.message().size());
  if (text.size() > kMaxStatusTextBytes) text = text.substr(0, kMaxStatusTextBytes) + " ...";
  return grpc::Status(static_cast<grpc::StatusCode>(status.raw_code()), std::move(text));
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED &&
      status.error_message().rfind(kBrokenOff, 0) == 0) {
    return absl::UnavailableError(
        "the server's connections hold too much of messages that are not whole yet: it broke the "
        "call off");
  }
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

}  // namespace tandem::rpc
