// Tensors in messages of proto/worker.proto: what each is in the small fields, their numbers one after the other in the `data` field,
// sent without a copy and copied once when received. Sizes are checked against each other before memory is taken.
// Thread rule: pure functions. Tensors lie in the host's memory.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/worker.pb.h"
#include "rpc/first_field.h"
#include "rpc/payload.h"
#include "trainer/tensor/tensor.h"

namespace tandem::remote {

using ArrayInfos = google::protobuf::RepeatedPtrField<ArrayInfo>;

// What the payload of a message can hold beside its small fields; rpc refuses more.
inline constexpr size_t kMaxArrayBytes = size_t{63} << 20;

// Ok if the arrays fit one message and are of types that have a place in it.
absl::Status CheckArrays(const std::vector<Tensor>& arrays);
// Adds what the tensor is; an undefined one is NONE.
ArrayInfo* DescribeArray(const Tensor& tensor, ArrayInfos* infos);
// `small_fields` is the message without its data. REQUIRES: CheckArrays; `arrays` as described in it.
rpc::Payload MessageOf(std::string small_fields, const std::vector<Tensor>& arrays);

// A received message's arrays; NONE is undefined. InvalidArgument if sizes do not fit.
absl::StatusOr<std::vector<Tensor>> ReadArrays(const ArrayInfos& infos, std::string_view data);

// Of a request: fields at its top level, and bytes beside the data of arrays.
inline constexpr size_t kMaxRequestFields = 4096;
inline constexpr size_t kMaxSmallBytes = size_t{128} << 10;

// A received request, without its data, and its data, which lives as long as `payload`. InvalidArgument if it cannot be read, or has more
// fields or bytes beside its data than a request may have.
template <class Request>
absl::StatusOr<Request> DecodeRequest(rpc::Payload& payload, std::string_view* data = nullptr) {
  rpc::SplitMessage split;
  if (!rpc::SplitBytesFields(payload.Flatten(), {15}, &split, data == nullptr ? rpc::kAnySmallBytes : kMaxSmallBytes)) {
    return absl::InvalidArgumentError("malformed message, or one with too many bytes beside its arrays");
  }
  if (absl::Status status = rpc::CheckFields(split.small_fields, kMaxRequestFields); !status.ok()) return status;
  Request request;
  if (!request.ParseFromString(split.small_fields)) return absl::InvalidArgumentError("malformed message");
  if (data != nullptr) *data = split.bytes_fields[0];
  return request;
}

// A received message whose class is Message, without its data, and its data, which lives as long as `payload`.
template <class Message>
absl::StatusOr<Message> Decode(rpc::Payload& payload, std::string_view* data = nullptr) {
  rpc::SplitMessage split;
  Message message;
  if (!rpc::SplitBytesFields(payload.Flatten(), {15}, &split) || !message.ParseFromString(split.small_fields)) {
    return absl::InvalidArgumentError("malformed message");
  }
  if (data != nullptr) *data = split.bytes_fields[0];
  return message;
}

}  // namespace tandem::remote
