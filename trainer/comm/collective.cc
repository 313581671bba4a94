#include "trainer/comm/collective.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tandem::comm {

namespace {

const char* NameOf(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::ALL_REDUCE:
      return "AllReduce";
    case CollectiveKind::ALL_GATHER:
      return "AllGather";
    case CollectiveKind::REDUCE_SCATTER:
      return "ReduceScatter";
    case CollectiveKind::BROADCAST:
      return "Broadcast";
    case CollectiveKind::ALL_TO_ALL_V:
      return "AllToAllV";
    case CollectiveKind::SEND:
      return "Send";
    case CollectiveKind::RECV:
      return "Recv";
    case CollectiveKind::SEND_RECV:
      return "SendRecv";
  }
  return "?";
}

const char* NameOf(ReduceOp op) {
  switch (op) {
    case ReduceOp::SUM:
      return "SUM";
    case ReduceOp::MAX:
      return "MAX";
    case ReduceOp::MIN:
      return "MIN";
  }
  return "?";
}

absl::Status Mismatch(int rank, const Description& mine, int other_rank,
                      const Description& theirs) {
  return absl::InternalError(absl::StrCat("ranks run different operations: rank ", rank, " ",
                                          mine.ToString(), ", rank ", other_rank, " ",
                                          theirs.ToString()));
}

}  // namespace

bool IsPointToPoint(CollectiveKind kind) { return Sends(kind) || Receives(kind); }

bool TakesPart(const Description& description, int rank) {
  return !IsPointToPoint(description.kind) || rank == description.root ||
         (description.kind == CollectiveKind::SEND_RECV && rank == description.source);
}

bool Sends(CollectiveKind kind) {
  return kind == CollectiveKind::SEND || kind == CollectiveKind::SEND_RECV;
}

bool Receives(CollectiveKind kind) {
  return kind == CollectiveKind::RECV || kind == CollectiveKind::SEND_RECV;
}

Description SendHalf(const Collective& collective) {
  Description half = collective.description;
  half.kind = CollectiveKind::SEND;
  return half;
}

Description RecvHalf(const Collective& collective) {
  Description half = collective.description;
  if (half.kind == CollectiveKind::SEND_RECV) {
    half.root = half.source;
    half.count = collective.output.num_elements();
  }
  half.kind = CollectiveKind::RECV;
  return half;
}

bool IsBarrier(const Description& description) {
  return description.kind == CollectiveKind::ALL_REDUCE && description.count == 0;
}

const char* SpanName(const Description& description) {
  if (IsBarrier(description)) return "barrier";
  switch (description.kind) {
    case CollectiveKind::ALL_REDUCE:
      return "all_reduce";
    case CollectiveKind::ALL_GATHER:
      return "all_gather";
    case CollectiveKind::REDUCE_SCATTER:
      return "reduce_scatter";
    case CollectiveKind::BROADCAST:
      return "broadcast";
    case CollectiveKind::ALL_TO_ALL_V:
      return "all_to_all_v";
    case CollectiveKind::SEND:
      return "send";
    case CollectiveKind::RECV:
      return "recv";
    case CollectiveKind::SEND_RECV:
      return "send_recv";
  }
  return "?";
}

std::string RankName(absl::Span<const std::string> names, int rank) {
  return names.empty() ? absl::StrCat("rank ", rank) : names[static_cast<size_t>(rank)];
}

std::vector<std::string> NamesOf(absl::Span<const std::string> names, absl::Span<const int> ranks) {
  std::vector<std::string> some;
  for (const int rank : ranks) {
    if (!names.empty()) some.push_back(names[static_cast<size_t>(rank)]);
  }
  return some;
}

size_t NumBytes(const Collective& collective) {
  // An absent view is a scalar without an address.
  const auto bytes = [](const ArrayView& view) {
    return view.data == nullptr ? 0 : view.num_bytes();
  };
  return std::max(bytes(collective.output), bytes(collective.input));
}

std::string Description::ToString() const {
  if (IsBarrier(*this)) return absl::StrCat("Barrier #", sequence, " (tag ", tag, ")");
  const bool reduces = kind == CollectiveKind::ALL_REDUCE || kind == CollectiveKind::REDUCE_SCATTER;
  std::string text = absl::StrCat(NameOf(kind), " #", sequence, " (");
  if (kind == CollectiveKind::ALL_TO_ALL_V) {
    absl::StrAppend(&text, tandem::NameOf(dtype), ", ");
  } else {
    absl::StrAppend(&text, count, " x ", tandem::NameOf(dtype), ", ");
  }
  if (reduces)
    absl::StrAppend(&text, NameOf(op), ", ", order == SumOrder::TREE ? "TREE" : "ANY", ", ");
  if (kind == CollectiveKind::BROADCAST) absl::StrAppend(&text, "root ", root, ", ");
  if (IsPointToPoint(kind))
    absl::StrAppend(&text, Sends(kind) ? "to" : "from", " rank ", root, ", ");
  if (kind == CollectiveKind::SEND_RECV) absl::StrAppend(&text, "from rank ", source, ", ");
  return absl::StrCat(text, "tag ", tag, ")");
}

bool Description::operator==(const Description& other) const {
  return sequence == other.sequence && tag == other.tag && count == other.count &&
         root == other.root && source == other.source && kind == other.kind &&
         dtype == other.dtype && op == other.op && order == other.order;
}

absl::Status CheckSame(int rank, const Description& mine, int other_rank,
                       const Description& theirs) {
  return mine == theirs ? absl::OkStatus() : Mismatch(rank, mine, other_rank, theirs);
}

absl::Status CheckMessage(int receiver, const Description& recv, int sender,
                          const Description& send) {
  const bool same = recv.count == send.count && recv.dtype == send.dtype && recv.tag == send.tag;
  return same ? absl::OkStatus() : Mismatch(receiver, recv, sender, send);
}

}  // namespace tandem::comm
