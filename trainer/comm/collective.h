// One launched operation of a process group, and its description. All ranks must agree on the
// description. Ranks compare descriptions before they touch each other's bytes, so a mismatch is an
// error that shows both sides, not garbage.
// Thread rule: values only; none.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/base/array_view.h"
#include "kernels/memory/event.h"
#include "trainer/comm/process_group.h"

namespace tandem::comm {

enum class CollectiveKind : uint8_t {
  ALL_REDUCE,
  ALL_GATHER,
  REDUCE_SCATTER,
  BROADCAST,
  ALL_TO_ALL_V,
  SEND,
  RECV,
  SEND_RECV
};

// Plain bytes, because a description travels through shared memory.
struct Description {
  // Position among the group's collectives; messages have their own count.
  uint64_t sequence = 0;
  uint64_t tag = 0;
  int64_t count = 0;   // elements of one rank's share; 0 if ranks may differ (AllToAllV)
  int32_t root = 0;    // Broadcast: the root. Send, Recv: the peer. SendRecv: whom it sends to.
  int32_t source = 0;  // SendRecv: whom it receives from
  CollectiveKind kind = CollectiveKind::ALL_REDUCE;
  DType dtype = DType::U8;
  ReduceOp op = ReduceOp::SUM;
  SumOrder order = SumOrder::ANY;

  // For example: AllReduce #12 (1000 x f32, SUM, TREE, tag 7).
  std::string ToString() const;
  bool operator==(const Description& other) const;
};

struct Collective {
  Description description;
  ArrayView output;  // AllReduce, Broadcast: the view itself. Recv, SendRecv: what arrives.
  ArrayView input;   // Send, SendRecv: what leaves
  std::vector<int64_t> recv_counts = {}, send_counts = {};  // AllToAllV only
  // On a device: the arrays are computed once `ready` has happened. Null: they are already.
  std::shared_ptr<const Event> ready = nullptr;
};

bool IsPointToPoint(CollectiveKind kind);
// True if `rank` takes part in the operation of another rank: its peer, or any of a collective.
bool TakesPart(const Description& description, int rank);
// The halves of a point-to-point operation, each a Send or a Recv.
bool Sends(CollectiveKind kind);
bool Receives(CollectiveKind kind);
Description SendHalf(const Collective& collective);
Description RecvHalf(const Collective& collective);
// An AllReduce without elements.
bool IsBarrier(const Description& description);
// The operation's name in traces; a string literal.
const char* SpanName(const Description& description);
// How messages call a rank. `names`: by rank; empty: "rank 1".
std::string RankName(absl::Span<const std::string> names, int rank);
// The names of some ranks; none of none.
std::vector<std::string> NamesOf(absl::Span<const std::string> names, absl::Span<const int> ranks);
// The bytes of the larger of the two arrays.
size_t NumBytes(const Collective& collective);

// Returns Ok if rank `rank` and rank `other_rank` run the same operation, else Internal with both
// descriptions.
absl::Status CheckSame(int rank, const Description& mine, int other_rank,
                       const Description& theirs);
// Like CheckSame, for the two ends of one message: count, dtype and tag must agree.
absl::Status CheckMessage(int receiver, const Description& recv, int sender,
                          const Description& send);

}  // namespace tandem::comm
