// Tensors in messages of proto/worker.proto. The small fields describe each tensor. The `data`
// field holds all numbers one after another; it is sent without a copy and copied once when
// received. Sizes are checked against each other before memory is allocated.
// Thread rule: pure functions. Tensors lie in host memory.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rpc/first_field.h"
#include "rpc/payload.h"
#include "trainer/tensor/tensor.h"

namespace google::protobuf {
template <class T>
class RepeatedPtrField;
}

namespace tandem {
class ArrayInfo;  // proto/worker.pb.h
}

namespace tandem::remote {

using ArrayInfos = google::protobuf::RepeatedPtrField<ArrayInfo>;

// The largest data of a message beside its small fields; rpc refuses more.
inline constexpr size_t kMaxArrayBytes = size_t{63} << 20;

// Returns Ok if the arrays fit one message and have types that a message can hold.
absl::Status CheckArrays(const std::vector<Tensor>& arrays);
// Adds the description of a tensor. An undefined tensor is NONE.
ArrayInfo* DescribeArray(const Tensor& tensor, ArrayInfos* infos);
// `small_fields` is the message without its data.
// REQUIRES: CheckArrays; `small_fields` describes `arrays`.
rpc::Payload MessageOf(std::string small_fields, const std::vector<Tensor>& arrays);

// Reads the arrays of a received message; NONE becomes undefined. InvalidArgument if sizes do not
// fit.
absl::StatusOr<std::vector<Tensor>> ReadArrays(const ArrayInfos& infos, std::string_view data);

// Limits of a request: the fields at its top level, and the bytes beside the data of its arrays.
inline constexpr size_t kMaxRequestFields = 4096;
inline constexpr size_t kMaxSmallBytes = size_t{128} << 10;

// Decodes a received request without its data, and points `data` at its data, which lives as long
// as `payload`. InvalidArgument if the request cannot be read, or exceeds the limits above.
template <class Request>
absl::StatusOr<Request> DecodeRequest(rpc::Payload& payload, std::string_view* data = nullptr) {
  rpc::SplitMessage split;
  if (!rpc::SplitBytesFields(payload.Flatten(), {15}, &split,
                             data == nullptr ? rpc::kAnySmallBytes : kMaxSmallBytes)) {
    return absl::InvalidArgumentError(
        "malformed message, or one with too many bytes beside its arrays");
  }
  if (absl::Status status = rpc::CheckFields(split.small_fields, kMaxRequestFields); !status.ok())
    return status;
  Request request;
  if (!request.ParseFromString(split.small_fields))
    return absl::InvalidArgumentError("malformed message");
  if (data != nullptr) *data = split.bytes_fields[0];
  return request;
}

// Like DecodeRequest, without limits, for a message of class Message.
template <class Message>
absl::StatusOr<Message> Decode(rpc::Payload& payload, std::string_view* data = nullptr) {
  rpc::SplitMessage split;
  Message message;
  if (!rpc::SplitBytesFields(payload.Flatten(), {15}, &split) ||
      !message.ParseFromString(split.small_fields)) {
    return absl::InvalidArgumentError("malformed message");
  }
  if (data != nullptr) *data = split.bytes_fields[0];
  return message;
}

}  // namespace tandem::remote
