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

constexpr size_t kCopyBelowBytes = 64;      // cheaper to copy than to count references
constexpr size_t kMaxStatusTextBytes = 8000;

void ReleaseOwner(void* owner) { delete static_cast<std::shared_ptr<const void>*>(owner); }

grpc::Slice ToGrpcSlice(const Payload::Slice& slice) {
  if (slice.size < kCopyBelowBytes || slice.owner == nullptr) return grpc::Slice(slice.data, slice.size);
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

Payload FromByteBuffer(const grpc::ByteBuffer& buffer) {
  Payload payload;
  if (!buffer.Valid()) return payload;
  auto slices = std::make_shared<std::vector<grpc::Slice>>();
  // Fails only on a corrupt compressed message, which reads as an empty one: the parser behind says what is missing.
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
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

}  // namespace tandem::rpc
