// A pull or push of a client, cut into messages: the ids of its segments by server, then by size.
// Also gathers the ids of a message as they travel.
// Thread rule: immutable once made; any thread.
// Invariant: a plan copies the ids and needs no client, because answers may come late.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/memory/buffer.h"
#include "proto/embedding.pb.h"
#include "ps/wire/message_cut.h"
#include "ps/wire/router.h"
#include "ps/wire/wire_codec.h"

namespace tandem::ps {

using TableSpecMap = std::map<uint32_t, TableSpec>;  // by table number

// The ids of one segment of a call.
struct SegmentIds {
  uint32_t table = 0;
  absl::Span<const uint64_t> ids;
};

// Returns the ids of PullSegments or PushSegments.
template <class SegmentType>
std::vector<SegmentIds> IdsOf(const std::vector<SegmentType>& segments) {
  std::vector<SegmentIds> ids;
  for (const SegmentType& segment : segments) ids.push_back({segment.table, segment.ids});
  return ids;
}

struct MessagePlan {
  // The table of a segment.
  struct Table {
    uint32_t number = 0, dim = 0;
    uint64_t seed = 0;
    bool dense = false;
  };

  const OwnedIds& OwnedOf(const CutMessage& message, const IdRange& range) const {
    return split[range.segment][static_cast<size_t>(message.server)];
  }

  WireFormat wire = WIRE_F32;
  std::vector<Table> tables;                 // [segment]
  std::vector<size_t> row_bytes;             // [segment], bytes of a row on the wire
  std::vector<std::vector<OwnedIds>> split;  // [segment][server]
  std::vector<CutMessage> messages;
  std::vector<int> messages_of_server;
  size_t num_bytes = 0;  // of ids and rows
};

// Returns the place in its segment of id `i` of a server's share.
inline size_t PlaceOf(const OwnedIds& owned, size_t i) {
  return owned.positions.empty() ? i : owned.positions[i];
}

// Returns the spec of `table`. InvalidArgument if there is no such table.
absl::StatusOr<const TableSpec*> FindSpec(const TableSpecMap& specs, uint32_t table);

// Cuts a call. A message has about `message_bytes` of ids and rows at most. InvalidArgument for an
// unknown table and like Router::Split.
absl::StatusOr<std::shared_ptr<const MessagePlan>> PlanMessages(
    const std::vector<SegmentIds>& segments, const TableSpecMap& specs, const Router& router,
    WireFormat wire, size_t message_bytes);

// The ids of a message as they travel, in one buffer. The buffer may be larger.
struct GatheredIds {
  std::shared_ptr<Buffer> buffer;
  size_t num_bytes = 0;
  IdsFormat format = IDS_RAW;
};

// Gathers the ids as differences if every segment's ids ascend and differences are smaller.
GatheredIds GatherIds(const MessagePlan& plan, const CutMessage& message);

// Describes the message's segments and the format of its ids in `request`, a PullRequest or a
// PushRequest.
template <class Request>
void DescribeIds(const MessagePlan& plan, const CutMessage& message, const GatheredIds& ids,
                 Request* request) {
  for (const IdRange& range : message.ranges) {
    Segment* segment = request->add_segments();
    segment->set_table(plan.tables[range.segment].number);
    segment->set_count(range.end - range.begin);
  }
  if (ids.format != IDS_RAW) request->set_ids_format(ids.format);
}

}  // namespace tandem::ps
