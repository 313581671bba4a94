// Tensors in messages of proto/worker.proto: what each is in the small fields, their numbers one after the other in the `data` field,
// sent without a copy and copied once when received. Sizes are checked against each other before memory is taken.
// Thread rule: pure functions. Tensors lie in the host's memory.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/worker.pb.h"
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
