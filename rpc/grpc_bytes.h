// The seam between our types and gRPC's: payloads and statuses, converted without copying payload bytes. Private to
// rpc/*.cc; it only names gRPC's types, so that their headers stay out. Thread rule: pure functions.
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
constexpr int kFrameBytes = 1 << 20;        // one HTTP/2 frame for a typical slice
constexpr int kLookaheadBytes = 4 << 20;    // what a sender may have on its way per stream
constexpr int kReadChunkBytes = 256 << 10;
constexpr int kKeepaliveMilliseconds = 10'000;

// Every slice keeps its owner until gRPC has written it.
void ToByteBuffer(const Payload& payload, grpc::ByteBuffer* buffer);
// The slices keep gRPC's receive memory alive, and `held` as long.
Payload FromByteBuffer(const grpc::ByteBuffer& buffer, std::shared_ptr<const void> held = nullptr);

// Codes map one to one. A long text is cut: it travels as HTTP/2 metadata, whose size is limited.
grpc::Status ToGrpcStatus(const absl::Status& status);
// A call that the server broke off to save memory is Unavailable.
absl::Status FromGrpcStatus(const grpc::Status& status);

}  // namespace tandem::rpc
