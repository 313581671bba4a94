#include "trainer/report/gather_traces.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/random.h"
#include "kernels/base/status_macros.h"
#include "proto/trace.pb.h"
#include "rpc/role_trace.h"
#include "trainer/comm/gather_bytes.h"

namespace tandem::report {

namespace {

constexpr int kClockSamples = 8;

constexpr comm::CollectiveArgs kArgs{.tag = StableHash("trace")};

absl::Status SendClock(comm::ProcessGroup& group, int target, int64_t value, absl::Time deadline) {
  return group.Await(group.Send(DenseView(&value, Shape{1}), target, kArgs), deadline);
}

absl::StatusOr<int64_t> ReceiveClock(comm::ProcessGroup& group, int source, absl::Time deadline) {
  int64_t value = 0;
  RETURN_IF_ERROR(group.Await(group.Recv(DenseView(&value, Shape{1}), source, kArgs), deadline));
  return value;
}

// Returns, at rank 0, how far the clock of `rank` is ahead of rank 0's. REQUIRES: both ranks call
// it.
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

absl::StatusOr<std::vector<RoleTrace>> GatherTraces(comm::ProcessGroup& group,
                                                    const RoleTrace& mine, absl::Time deadline,
                                                    const std::function<int64_t()>& clock) {
  const size_t size = static_cast<size_t>(group.size());
  const uint64_t machine = mine.boot_id().empty() ? 0 : StableHash(mine.boot_id());  // 0: unknown
  std::vector<uint64_t> machines(size);
  const ArrayView all = DenseView(machines.data(), Shape{group.size()});
  RETURN_IF_ERROR(
      group.Await(group.AllGather(all, DenseView(&machine, Shape{1}), kArgs), deadline));
  std::vector<int64_t> offsets(size, 0);
  for (size_t r = 0; r < size; ++r) {
    const int rank = static_cast<int>(r);
    const bool same_clock = r == 0 || (machines[r] != 0 && machines[r] == machines[0]);
    if (!same_clock && (group.rank() == 0 || group.rank() == rank)) {
      ASSIGN_OR_RETURN(offsets[r], OffsetOf(group, rank, deadline, clock));
    }
  }

  ASSIGN_OR_RETURN(const std::vector<std::string> gathered,
                   comm::GatherBytes(group, mine.SerializeAsString(), kArgs.tag, deadline));
  std::vector<RoleTrace> traces;
  for (size_t r = 0; r < gathered.size(); ++r) {
    RoleTrace trace;
    if (!trace.ParseFromString(gathered[r])) {
      return absl::InternalError(
          absl::StrCat("the trace of rank ", r, " is not a well-formed message"));
    }
    rpc::ShiftTimes(-offsets[r], &trace);
    trace.set_boot_id(mine.boot_id());
    traces.push_back(std::move(trace));
  }
  return traces;
}

}  // namespace tandem::report
