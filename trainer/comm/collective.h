// One launched operation of a process group, and its description: the part that all ranks must agree on. Ranks compare
// descriptions before they touch each other's bytes, so that a mismatch is an error with both sides in it, not garbage.
// Values only; no thread rule.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/base/array_view.h"
#include "kernels/memory/event.h"
#include "trainer/comm/process_group.h"

namespace tandem::comm {

enum class CollectiveKind : uint8_t { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, ALL_TO_ALL_V, SEND, RECV, BARRIER };

// Plain bytes: it travels through shared memory.
struct Description {
  uint64_t sequence = 0;  // position among the group's collectives; sends and receives count for themselves
  uint64_t tag = 0;
  int64_t count = 0;  // elements of one rank's share; 0 where ranks may differ (AllToAllV)
  int32_t root = 0;   // Broadcast's root, Send's and Recv's peer
  CollectiveKind kind = CollectiveKind::BARRIER;
  DType dtype = DType::U8;
  ReduceOp op = ReduceOp::SUM;
  SumOrder order = SumOrder::ANY;

  // For example: AllReduce #12 (1000 x f32, SUM, TREE, tag 7).
  std::string ToString() const;
  bool operator==(const Description& other) const;
};

struct Collective {
  Description description;
  ArrayView output;  // AllReduce, Broadcast, Recv: the view itself
  ArrayView input;   // Send: the view itself
  std::vector<int64_t> recv_counts = {}, send_counts = {};  // AllToAllV only
  std::shared_ptr<const Event> ready = nullptr;  // of arrays on a device: when they hold what was computed; null: now
};

bool IsPointToPoint(CollectiveKind kind);
// What traces call it; a string literal.
const char* SpanName(CollectiveKind kind);
// Of the larger of the two arrays.
size_t NumBytes(const Collective& collective);

// Ok if rank `rank`'s operation is the same as rank `other_rank`'s, else Internal with both.
absl::Status CheckSame(int rank, const Description& mine, int other_rank, const Description& theirs);
// The same for the two ends of one message: count, dtype and tag must agree.
absl::Status CheckMessage(int receiver, const Description& recv, int sender, const Description& send);

}  // namespace tandem::comm
