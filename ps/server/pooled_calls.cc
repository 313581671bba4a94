#include "ps/server/pooled_calls.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/memory/buffer.h"
#include "ps/wire/bag_rows.h"
#include "ps/wire/message_limits.h"
#include "ps/wire/wire_codec.h"

namespace tandem::ps {

namespace {

absl::Status Malformed(const char* what) {
  return absl::InvalidArgumentError(absl::StrCat("malformed message: ", what));
}

// One decoded segment of a message.
struct SegmentBags {
  uint32_t table = 0;
  size_t dim = 0;
  std::vector<uint64_t> ids;
  std::vector<uint32_t> counts, bag_of;  // counts: ids of each bag; bag_of: bag of each id
  const void* weights = nullptr;         // f32 in the message
  size_t first_value = 0;                // index of its first value among the message's
};

// The bags of a message. Keeps the payload alive.
struct Received {
  rpc::Payload payload;
  rpc::SplitMessage split;  // counts, weights, ids and, in a push, gradients
  std::vector<SegmentBags> segments;
  size_t num_values = 0;                        // f32 numbers of all bags
  std::vector<std::shared_ptr<Buffer>> memory;  // weighted gradients of ids
};

// Takes count * each bytes off the front. Returns false if there are fewer.
bool Take(std::string_view* bytes, uint64_t count, size_t each, const char** taken) {
  if (count > bytes->size() / each) return false;
  *taken = bytes->data();
  bytes->remove_prefix(count * each);
  return true;
}

template <class Segments>
absl::Status TakeSegments(const TableHost& host, const Segments& segments, Received* received) {
  std::string_view counts = received->split.bytes_fields[0],
                   weights = received->split.bytes_fields[1], ids = received->split.bytes_fields[2];
  size_t num_row_values = 0;  // f32 numbers of the rows of all ids
  for (const BagSegment& segment : segments) {
    SegmentBags bags;
    bags.table = segment.table();
    ASSIGN_OR_RETURN(bags.dim, host.Dim(segment.table()));
    const char *its_ids = nullptr, *its_counts = nullptr, *its_weights = nullptr;
    if (!Take(&ids, segment.ids(), sizeof(uint64_t), &its_ids) ||
        !Take(&counts, segment.bags(), sizeof(uint32_t), &its_counts) ||
        (segment.weighted() && !Take(&weights, segment.ids(), sizeof(float), &its_weights))) {
      return Malformed("segments count more than there is");
    }
    bags.weights = its_weights;
    bags.counts.resize(segment.bags());
    if (segment.bags() > 0)
      std::memcpy(bags.counts.data(), its_counts, segment.bags() * sizeof(uint32_t));
    uint64_t counted = 0;
    for (const uint32_t count : bags.counts) counted += count;
    if (counted != segment.ids())
      return Malformed("bags have another number of ids than their segment");
    bags.first_value = received->num_values;
    received->num_values += segment.bags() * bags.dim;
    // Cannot overflow before the limit is checked: the received bytes bound counts, and dim is at
    // most 2^16.
    if (received->num_values > kMaxMessageBytes / sizeof(float) ||
        segment.ids() * bags.dim > kMaxPooledRowBytes / sizeof(float)) {
      return absl::InvalidArgumentError("too many rows in one message; cut it into several");
    }
    // Checks and uses the same copy: the sender may still write to the message's memory.
    bags.ids.resize(segment.ids());
    if (!bags.ids.empty())
      std::memcpy(bags.ids.data(), its_ids, bags.ids.size() * sizeof(uint64_t));
    if (std::find(bags.ids.begin(), bags.ids.end(), 0) != bags.ids.end()) {
      return absl::InvalidArgumentError("id 0 is padding, never a row");
    }
    bags.bag_of.reserve(bags.ids.size());
    for (uint32_t bag = 0; bag < bags.counts.size(); ++bag)
      bags.bag_of.insert(bags.bag_of.end(), bags.counts[bag], bag);
    num_row_values += bags.ids.size() * bags.dim;
    received->segments.push_back(std::move(bags));
  }
  if (!ids.empty() || !counts.empty() || !weights.empty())
    return Malformed("segments count less than there is");
  if (num_row_values > kMaxPooledRowBytes / sizeof(float)) {
    return absl::InvalidArgumentError("too many rows in one message; cut it into several");
  }
  return absl::OkStatus();
}

// gradients [ids, dim] = each id's weight * the gradient of its bag.
void WeighGradients(const SegmentBags& bags, const char* of_bags, float* gradients) {
  std::vector<float> of_bag(bags.dim);
  for (size_t i = 0; i < bags.ids.size(); ++i, gradients += bags.dim) {
    std::memcpy(of_bag.data(), of_bags + bags.bag_of[i] * bags.dim * sizeof(float),
                bags.dim * sizeof(float));
    float weight;
    std::memcpy(&weight, static_cast<const char*>(bags.weights) + i * sizeof(weight),
                sizeof(weight));
    for (size_t column = 0; column < bags.dim; ++column)
      gradients[column] = weight * of_bag[column];
  }
}

// REQUIRES: the header was checked.
template <class Request>
absl::StatusOr<Request> Receive(rpc::Payload& payload, const std::vector<int>& fields,
                                Received* received) {
  received->payload = std::move(payload);
  if (!rpc::SplitBytesFields(received->payload.Flatten(), fields, &received->split,
                             kMaxSmallBytes)) {
    return Malformed("not a protobuf message, or one with too many bytes beside its ids and rows");
  }
  Request request;
  RETURN_IF_ERROR(RequestCheck::ParseFields(received->split.small_fields, kMaxFields, &request));
  return request;
}

}  // namespace

absl::Status PooledCalls::Pull(rpc::Payload& payload, const rpc::Reply& reply) const {
  RETURN_IF_ERROR(check_.CheckHeader(payload, Senders::ANY));
  const auto received = std::make_shared<Received>();
  ASSIGN_OR_RETURN(const auto request,
                   Receive<PullPooledRequest>(payload, {13, 14, 15}, received.get()));
  RETURN_IF_ERROR(TakeSegments(host_, request.segments(), received.get()));
  const auto pooled = Buffer::Allocate(received->num_values * sizeof(float));
  std::memset(pooled->data(), 0, pooled->num_bytes());
  std::vector<PullPart> parts;
  for (const SegmentBags& bags : received->segments) {
    parts.push_back({.table = bags.table,
                     .count = bags.ids.size(),
                     .ids = bags.ids.data(),
                     .rows = static_cast<float*>(pooled->data()) + bags.first_value,
                     .row_of = bags.bag_of.data(),
                     .weights = bags.weights});
  }
  std::optional<Caller> caller;
  if (request.header().sender().role() == TRAINER)
    caller = {request.header().sender().rank(), request.header().sender().incarnation()};
  host_.Pull(
      caller, request.step(), request.create(), parts,
      [received, pooled, reply, version = check_.shard_map_version()](absl::Status status) {
        if (!status.ok()) return reply(status);
        PullPooledReply small;
        small.set_shard_map_version(version);
        rpc::Payload message(small.SerializeAsString());
        rpc::AppendBytesField(message, 15, pooled->data(), pooled->num_bytes(), pooled);
        reply(std::move(message));
      },
      request.header().trace_id());
  return absl::OkStatus();
}

absl::Status PooledCalls::Push(rpc::Payload& payload, const rpc::Reply& reply) const {
  RETURN_IF_ERROR(check_.CheckHeader(payload, Senders::TRAINERS));
  const auto received = std::make_shared<Received>();
  ASSIGN_OR_RETURN(const auto request,
                   Receive<PushPooledRequest>(payload, {12, 13, 14, 15}, received.get()));
  RETURN_IF_ERROR(CheckPayload(request, received->split.bytes_fields));
  RETURN_IF_ERROR(TakeSegments(host_, request.segments(), received.get()));
  const std::string_view gradients = received->split.bytes_fields[3];
  if (received->num_values * sizeof(float) != gradients.size())
    return Malformed("gradients are not as long as segments say");
  std::vector<PushPart> parts;
  for (SegmentBags& bags : received->segments) {
    PushPart part{.table = bags.table,
                  .count = bags.ids.size(),
                  .ids = bags.ids.data(),
                  .gradients = {},
                  .row_of = bags.bag_of.data()};
    const char* const of_bags = gradients.data() + bags.first_value * sizeof(float);
    if (bags.weights == nullptr) {
      part.gradients = WireRows(of_bags);
      part.num_gradients = bags.counts.size();
    } else {
      received->memory.push_back(Buffer::Allocate(bags.ids.size() * bags.dim * sizeof(float)));
      WeighGradients(bags, of_bags, static_cast<float*>(received->memory.back()->data()));
      part.gradients = WireRows(received->memory.back()->data());
      part.num_gradients = bags.ids.size();
      std::iota(bags.bag_of.begin(), bags.bag_of.end(), 0u);  // each id now has its own gradient
    }
    parts.push_back(std::move(part));
  }
  const Sender& sender = request.header().sender();
  host_.Accumulate(
      {sender.rank(), request.step(), request.slice(), request.sequence(), sender.incarnation()},
      parts, received,
      [reply](absl::Status status) {
        if (status.ok())
          reply(rpc::Payload(PushReply().SerializeAsString()));
        else
          reply(status);
      },
      request.header().trace_id());
  return absl::OkStatus();
}

}  // namespace tandem::ps
