#include "trainer/loop/gather_traces.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/random.h"
#include "kernels/base/status_macros.h"
#include "rpc/role_trace.h"

namespace tandem::loop {

namespace {

constexpr int kClockSamples = 8;

constexpr comm::CollectiveArgs kArgs{.tag = StableHash("trace")};

// What ranks tell each other first.
struct Summary {
  uint64_t machine;  // 0: unknown
  uint64_t num_bytes;
};

absl::Status SendClock(comm::ProcessGroup& group, int target, int64_t value, absl::Time deadline) {
  return group.Await(group.Send(DenseView(&value, Shape{1}), target, kArgs), deadline);
}

absl::StatusOr<int64_t> ReceiveClock(comm::ProcessGroup& group, int source, absl::Time deadline) {
  int64_t value = 0;
  RETURN_IF_ERROR(group.Await(group.Recv(DenseView(&value, Shape{1}), source, kArgs), deadline));
  return value;
}

// How far the clock of `rank` is ahead of rank 0's, at rank 0; both ranks call it.
absl::StatusOr<int64_t> OffsetOf(comm::ProcessGroup& group, int rank, absl::Time deadline,
                                 const std::function<int64_t()>& clock) {
  rpc::ClockOffset offset;
  for (int i = 0; i < kClockSamples; ++i) {
    if (group.rank() == rank) {
      RETURN_IF_ERROR(ReceiveClock(group, 0, deadline).status());
      RETURN_IF_ERROR(SendClock(group, 0, clock(), deadline));
    } else {
      const int64_t sent_ns = clock();
      RETURN_IF_ERROR(SendClock(group, rank, sent_ns, deadline));
      ASSIGN_OR_RETURN(const int64_t peer_ns, ReceiveClock(group, rank, deadline));
      offset.AddSample(sent_ns, peer_ns, clock());
    }
  }
  return offset.ns();
}

}  // namespace

absl::StatusOr<std::vector<RoleTrace>> GatherTraces(comm::ProcessGroup& group, const RoleTrace& mine, absl::Time deadline,
                                                    const std::function<int64_t()>& clock) {
  const size_t size = static_cast<size_t>(group.size());
  const bool root = group.rank() == 0;
  std::string bytes = mine.SerializeAsString();
  const Summary summary{mine.boot_id().empty() ? 0 : StableHash(mine.boot_id()), bytes.size()};
  std::vector<Summary> summaries(size);
  constexpr int64_t kWords = sizeof(Summary) / sizeof(uint64_t);
  const ArrayView all = DenseView(&summaries[0].machine, Shape{group.size(), kWords});
  RETURN_IF_ERROR(group.Await(group.AllGather(all, DenseView(&summary.machine, Shape{kWords}), kArgs), deadline));

  std::vector<int64_t> offsets(size, 0), send_counts(size, 0), receive_counts(size, 0);
  int64_t total = 0;
  send_counts[0] = static_cast<int64_t>(bytes.size());
  for (size_t r = 0; r < size; ++r) {
    const int rank = static_cast<int>(r);
    const bool same_clock = r == 0 || (summaries[r].machine != 0 && summaries[r].machine == summaries[0].machine);
    if (!same_clock && (root || group.rank() == rank)) {
      ASSIGN_OR_RETURN(offsets[r], OffsetOf(group, rank, deadline, clock));
    }
    if (!root) continue;
    receive_counts[r] = static_cast<int64_t>(summaries[r].num_bytes);
    total += receive_counts[r];
  }

  std::vector<uint8_t> received(static_cast<size_t>(total));
  RETURN_IF_ERROR(group.Await(
      group.AllToAllV(DenseView(received.data(), Shape{total}), receive_counts,
                      DenseView(reinterpret_cast<const uint8_t*>(bytes.data()), Shape{send_counts[0]}), send_counts, kArgs),
      deadline));
  std::vector<RoleTrace> traces;
  size_t begin = 0;
  for (size_t r = 0; root && r < size; ++r) {
    RoleTrace trace;
    if (!trace.ParseFromArray(received.data() + begin, static_cast<int>(receive_counts[r]))) {
      return absl::InternalError(absl::StrCat("the trace of rank ", r, " is not a well-formed message"));
    }
    begin += static_cast<size_t>(receive_counts[r]);
    rpc::ShiftTimes(-offsets[r], &trace);
    trace.set_boot_id(mine.boot_id());
    traces.push_back(std::move(trace));
  }
  return traces;
}

}  // namespace tandem::loop
