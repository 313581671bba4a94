#include "trainer/comm/split_plan.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace tandem::comm {

namespace {

// Keeps a Split from matching another AllGather by mistake.
constexpr uint64_t kSplitTag = 0x73706c6974;

}  // namespace

absl::StatusOr<SplitPlan> PlanSplit(ProcessGroup& group, int color, int key, absl::Time deadline) {
  const int64_t mine[2] = {color, key};
  std::vector<int64_t> all(2 * static_cast<size_t>(group.size()));
  CollectiveArgs args;
  args.tag = kSplitTag;
  const Work work =
      group.AllGather(DenseView(all.data(), {group.size(), 2}), DenseView(mine, {2}), args);
  if (absl::Status status = work.Wait(deadline); !status.ok()) {
    // The gather must not outlive its arrays.
    group.Abort(status);
    (void)work.Wait(absl::InfiniteFuture());
    return status;
  }
  SplitPlan plan{0, 0};
  for (int r = 0; r < group.size(); ++r) {
    const int64_t its_color = all[2 * r], its_key = all[2 * r + 1];
    if (its_color != color) continue;
    ++plan.size;
    if (its_key < key || (its_key == key && r < group.rank())) ++plan.rank;
  }
  return plan;
}

absl::Status CheckPairCount(int sender, int64_t sent, int receiver, int64_t expected) {
  if (sent == expected) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("AllToAllV: rank ", sender, " sends ", sent,
                                          " elements to rank ", receiver, ", which expects ",
                                          expected));
}

}  // namespace tandem::comm
