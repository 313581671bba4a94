#include "ps/client/pull_message.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/memory/buffer.h"
#include "ps/wire/wire_rows.h"

namespace tandem::ps {
namespace {

// True if the caller keeps rows of some segment.
bool HaveVersions(const std::vector<PullSegment>& segments) {
  return std::any_of(segments.begin(), segments.end(),
                     [](const PullSegment& segment) { return segment.versions != nullptr; });
}

// Visits the message's ids as visit(segment, place in it, dim).
template <class Visit>
void ForEachId(const MessagePlan& plan, const CutMessage& message,
               const std::vector<PullSegment>& segments, const Visit& visit) {
  for (const IdRange& range : message.ranges) {
    const OwnedIds& owned = plan.OwnedOf(message, range);
    for (size_t i = range.begin; i < range.end; ++i)
      visit(segments[range.segment], PlaceOf(owned, i), plan.tables[range.segment].dim);
  }
}

// Gathers the versions of the message's rows that the caller has. Puts the segments' read bounds
// into the request.
std::shared_ptr<Buffer> GatherVersions(const MessagePlan& plan, const CutMessage& message,
                                       const std::vector<PullSegment>& segments,
                                       PullRequest* request) {
  for (size_t i = 0; i < message.ranges.size(); ++i) {
    request->mutable_segments(static_cast<int>(i))
        ->set_read_bound(segments[message.ranges[i].segment].read_bound);
  }
  auto versions = Buffer::Allocate(message.num_ids * sizeof(uint32_t));
  uint32_t* next = static_cast<uint32_t*>(versions->data());
  ForEachId(plan, message, segments, [&](const PullSegment& segment, size_t place, size_t) {
    *next++ = segment.versions == nullptr ? 0 : segment.versions[place];
  });
  return versions;
}

// Like TakeRows, for an answer that leaves out rows that the caller has.
absl::Status TakeChanged(const MessagePlan& plan, const CutMessage& message,
                         const std::vector<PullSegment>& segments, rpc::Payload answer) {
  rpc::SplitMessage split;
  std::vector<std::string_view> pieces;
  if (!rpc::SplitBytesFields(answer, {14}, 15, &split, &pieces))
    return absl::InternalError("malformed reply");
  const std::string_view versions = split.bytes_fields[0];
  if (versions.size() != message.num_ids * sizeof(uint32_t)) {
    return absl::InternalError(absl::StrCat("answered ", versions.size(), " bytes of versions for ",
                                            message.num_ids, " ids"));
  }
  size_t expected = 0, widest = 0;
  bool unasked = false;
  // Copies the versions before checking, because the server may still write to the shared memory.
  std::vector<uint32_t> own_versions(message.num_ids);
  if (!own_versions.empty()) std::memcpy(own_versions.data(), versions.data(), versions.size());
  auto next_version = own_versions.begin();
  ForEachId(plan, message, segments, [&](const PullSegment& segment, size_t place, uint32_t dim) {
    const size_t row_bytes = WireBytes(plan.wire, dim);
    widest = std::max(widest, row_bytes);
    if (*next_version++ != 0)
      expected += row_bytes;
    else
      unasked |= segment.versions == nullptr || segment.versions[place] == 0;
  });
  if (const size_t answered = TotalBytes(pieces); unasked || answered != expected) {
    return absl::InternalError(absl::StrCat("answered ", answered, " bytes of rows, expected ",
                                            expected,
                                            unasked ? ", and left out rows that nobody has" : ""));
  }
  next_version = own_versions.begin();
  PieceReader rows(pieces);
  std::vector<char> joined(widest);
  ForEachId(plan, message, segments, [&](const PullSegment& segment, size_t place, uint32_t dim) {
    const uint32_t version = *next_version++;
    if (segment.versions != nullptr) segment.versions[place] = version;
    if (version == 0) return;
    DecodeRow(plan.wire, rows.Next(WireBytes(plan.wire, dim), joined.data()), dim,
              segment.rows + place * dim);
  });
  return absl::OkStatus();
}

absl::Status TakeRows(const MessagePlan& plan, const CutMessage& message,
                      const std::vector<PullSegment>& segments, rpc::Payload answer) {
  std::vector<std::string_view> pieces;
  if (!rpc::FindBytesField(answer, 15, &pieces)) return absl::InternalError("malformed reply");
  if (const size_t answered = TotalBytes(pieces); answered != message.row_bytes) {
    return absl::InternalError(
        absl::StrCat("answered ", answered, " bytes of rows, expected ", message.row_bytes));
  }
  PieceReader rows(pieces);
  std::vector<char> joined;
  for (const IdRange& range : message.ranges) {
    const uint32_t dim = plan.tables[range.segment].dim;
    const size_t row_bytes = plan.row_bytes[range.segment];
    const OwnedIds& owned = plan.OwnedOf(message, range);
    float* const target = segments[range.segment].rows;
    joined.resize(std::max(joined.size(), row_bytes));
    for (size_t i = range.begin; i < range.end; ++i) {
      DecodeRow(plan.wire, rows.Next(row_bytes, joined.data()), dim,
                target + PlaceOf(owned, i) * dim);
    }
  }
  return absl::OkStatus();
}

}  // namespace

rpc::Payload EncodePull(const MessagePlan& plan, const CutMessage& message,
                        const std::vector<PullSegment>& segments, PullRequest request) {
  request.set_rows_format(plan.wire);
  const GatheredIds ids = GatherIds(plan, message);
  DescribeIds(plan, message, ids, &request);
  std::shared_ptr<Buffer> versions;
  if (HaveVersions(segments)) versions = GatherVersions(plan, message, segments, &request);
  rpc::Payload payload(request.SerializeAsString());
  rpc::AppendBytesField(payload, 15, ids.buffer->data(), ids.num_bytes, ids.buffer);
  if (versions != nullptr)
    rpc::AppendBytesField(payload, 16, versions->data(), versions->num_bytes(), versions);
  return payload;
}

absl::Status TakePulled(const MessagePlan& plan, const CutMessage& message,
                        const std::vector<PullSegment>& segments, rpc::Payload answer) {
  return HaveVersions(segments) ? TakeChanged(plan, message, segments, std::move(answer))
                                : TakeRows(plan, message, segments, std::move(answer));
}

}  // namespace tandem::ps
