// Converts payloads and statuses between our types and gRPC's, without copying payload bytes.
// Private to rpc/*.cc. Forward-declares gRPC's types to keep gRPC's headers out.
// Thread rule: pure functions.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "rpc/payload.h"

namespace grpc {
class ByteBuffer;
class Status;
}  // namespace grpc

namespace tandem::rpc {

constexpr int kMaxMessageBytes = 64 << 20;
constexpr int kMaxMetadataBytes = 64 << 10;
constexpr int kFrameBytes = 1 << 20;      // one HTTP/2 frame for a typical slice
constexpr int kLookaheadBytes = 4 << 20;  // bytes that a sender may have in flight per stream
constexpr int kReadChunkBytes = 256 << 10;
constexpr int kKeepaliveMilliseconds = 10'000;

// Each slice keeps its owner alive until gRPC has written the slice.
void ToByteBuffer(const Payload& payload, grpc::ByteBuffer* buffer);
// The slices keep gRPC's receive memory and `held` alive.
Payload FromByteBuffer(const grpc::ByteBuffer& buffer, std::shared_ptr<const void> held = nullptr);

// Maps codes one to one. Truncates a long text, because the text travels as HTTP/2 metadata of
// limited size.
grpc::Status ToGrpcStatus(const absl::Status& status);
// Maps a call that the server broke off to save memory to Unavailable.
absl::Status FromGrpcStatus(const grpc::Status& status);

}  // namespace tandem::rpc
