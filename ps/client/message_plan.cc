#include "ps/client/message_plan.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace tandem::ps {
namespace {

// Returns the ids of a range, in order.
absl::Span<const uint64_t> IdsIn(const MessagePlan& plan, const CutMessage& message,
                                 const IdRange& range) {
  return absl::MakeConstSpan(plan.OwnedOf(message, range).ids)
      .subspan(range.begin, range.end - range.begin);
}

// The buffer is null if some segment's ids do not ascend or little is saved.
GatheredIds GatherDifferences(const MessagePlan& plan, const CutMessage& message) {
  const size_t room = message.num_ids * sizeof(uint64_t);
  GatheredIds gathered{Buffer::Allocate(room + kMaxIdBytes), 0, IDS_DELTA};
  char* const begin = static_cast<char*>(gathered.buffer->data());
  char* end = begin;
  for (const IdRange& range : message.ranges) {
    end =
        EncodeAscending(IdsIn(plan, message, range), room - static_cast<size_t>(end - begin), end);
    if (end == nullptr) return {};
  }
  gathered.num_bytes = static_cast<size_t>(end - begin);
  return gathered;
}

GatheredIds GatherRaw(const MessagePlan& plan, const CutMessage& message) {
  const size_t num_bytes = message.num_ids * sizeof(uint64_t);
  GatheredIds gathered{Buffer::Allocate(num_bytes), num_bytes, IDS_RAW};
  char* next = static_cast<char*>(gathered.buffer->data());
  for (const IdRange& range : message.ranges) {
    const auto ids = IdsIn(plan, message, range);
    std::memcpy(next, ids.data(), ids.size() * sizeof(uint64_t));
    next += ids.size() * sizeof(uint64_t);
  }
  return gathered;
}

}  // namespace

absl::StatusOr<const TableSpec*> FindSpec(const TableSpecMap& specs, uint32_t table) {
  const auto spec = specs.find(table);
  if (spec == specs.end())
    return absl::InvalidArgumentError(absl::StrCat("there is no table ", table));
  return &spec->second;
}

absl::StatusOr<std::shared_ptr<const MessagePlan>> PlanMessages(
    const std::vector<SegmentIds>& segments, const TableSpecMap& specs, const Router& router,
    WireFormat wire, size_t message_bytes) {
  auto plan = std::make_shared<MessagePlan>();
  plan->wire = wire;
  for (const SegmentIds& segment : segments) {
    ASSIGN_OR_RETURN(const TableSpec* const spec, FindSpec(specs, segment.table));
    ASSIGN_OR_RETURN(
        std::vector<OwnedIds> owned,
        router.Split(segment.table, spec->name(), segment.ids.data(), segment.ids.size()));
    plan->split.push_back(std::move(owned));
    plan->tables.push_back({segment.table, spec->dim(), spec->seed(), spec->dense()});
    plan->row_bytes.push_back(WireBytes(wire, spec->dim()));
    plan->num_bytes += segment.ids.size() * (sizeof(uint64_t) + plan->row_bytes.back());
  }
  plan->messages = CutMessages(plan->split, plan->row_bytes, message_bytes);
  plan->messages_of_server.resize(static_cast<size_t>(router.num_owners()));
  for (const CutMessage& message : plan->messages)
    ++plan->messages_of_server[static_cast<size_t>(message.server)];
  return plan;
}

GatheredIds GatherIds(const MessagePlan& plan, const CutMessage& message) {
  GatheredIds differences = GatherDifferences(plan, message);
  return differences.buffer != nullptr ? differences : GatherRaw(plan, message);
}

}  // namespace tandem::ps
