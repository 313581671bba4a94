#include "ps/client/pooled_message.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/crc32c.h"
#include "kernels/base/status_macros.h"
#include "kernels/memory/buffer.h"
#include "ps/wire/wire_rows.h"

namespace tandem::ps {
namespace {

using rpc::Payload;

BagSegment SegmentOf(uint32_t table, const PooledMessage& message) {
  BagSegment segment;
  segment.set_table(table);
  segment.set_ids(message.ids.size());
  segment.set_bags(message.bags.size());
  segment.set_weighted(!message.weights.empty());
  return segment;
}

template <class T>
size_t SizeInBytes(const std::vector<T>& values) {
  return values.size() * sizeof(T);
}

// Appends counts, weights and ids of the bags as fields `first_field` to `first_field` + 2. `owner`
// keeps the message alive.
void AppendBags(Payload& payload, int first_field, const std::shared_ptr<const void>& owner,
                const PooledMessage& message) {
  rpc::AppendBytesField(payload, first_field, message.counts.data(), SizeInBytes(message.counts),
                        owner);
  rpc::AppendBytesField(payload, first_field + 1, message.weights.data(),
                        SizeInBytes(message.weights), owner);
  rpc::AppendBytesField(payload, first_field + 2, message.ids.data(), SizeInBytes(message.ids),
                        owner);
}

uint32_t CrcOfBags(const PooledMessage& message) {
  const uint32_t counts = Crc32c(0, message.counts.data(), SizeInBytes(message.counts));
  const uint32_t weights = Crc32c(counts, message.weights.data(), SizeInBytes(message.weights));
  return Crc32c(weights, message.ids.data(), SizeInBytes(message.ids));
}

}  // namespace

absl::Status PooledMessages::Take(size_t number, const Bags& bags, size_t dim, Payload answer,
                                  float* pooled) {
  RETURN_IF_ERROR(TakePart(number, dim, std::move(answer)));
  if (missing_.fetch_sub(1) != 1) return absl::OkStatus();
  for (size_t i = 0; i < messages_.size(); ++i) {
    const float* from = parts_[i].data();
    for (const uint32_t bag : messages_[i].bags) {
      for (size_t column = 0; column < dim; ++column) pooled[bag * dim + column] += *from++;
    }
  }
  ScalePooled(bags, dim, pooled, pooled);
  return absl::OkStatus();
}

absl::Status PooledMessages::TakePart(size_t number, size_t dim, Payload answer) {
  std::vector<std::string_view> pieces;
  if (!rpc::FindBytesField(answer, 15, &pieces)) return absl::InternalError("malformed reply");
  std::vector<float>& part = parts_[number];
  part.resize(messages_[number].bags.size() * dim);
  if (const size_t answered = TotalBytes(pieces); answered != SizeInBytes(part)) {
    return absl::InternalError(
        absl::StrCat("answered ", answered, " bytes of bags, expected ", SizeInBytes(part)));
  }
  char* next = reinterpret_cast<char*>(part.data());
  for (const std::string_view piece : pieces) next = std::copy(piece.begin(), piece.end(), next);
  return absl::OkStatus();
}

Payload EncodePullPooled(uint32_t table, const PooledMessage& message,
                         std::shared_ptr<const void> owner, PullPooledRequest request) {
  *request.add_segments() = SegmentOf(table, message);
  Payload payload(request.SerializeAsString());
  AppendBags(payload, 13, owner, message);
  return payload;
}

Payload EncodePushPooled(uint32_t table, const PooledMessage& message,
                         std::shared_ptr<const void> owner, size_t dim, const float* gradients,
                         PushPooledRequest request) {
  *request.add_segments() = SegmentOf(table, message);
  const auto of_bags = Buffer::Allocate(message.bags.size() * dim * sizeof(float));
  float* next = static_cast<float*>(of_bags->data());
  for (const uint32_t bag : message.bags) next = std::copy_n(gradients + bag * dim, dim, next);
  request.set_payload_crc32c(Crc32c(CrcOfBags(message), of_bags->data(), of_bags->num_bytes()));
  Payload payload(request.SerializeAsString());
  AppendBags(payload, 12, owner, message);
  rpc::AppendBytesField(payload, 15, of_bags->data(), of_bags->num_bytes(), of_bags);
  return payload;
}

}  // namespace tandem::ps
