#include "trainer/comm/split_plan.h"

#include <algorithm>
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
  SplitPlan plan;
  for (int r = 0; r < group.size(); ++r) {
    if (all[2 * r] == color) plan.members.push_back(r);
  }
  std::stable_sort(plan.members.begin(), plan.members.end(),
                   [&](int a, int b) { return all[2 * a + 1] < all[2 * b + 1]; });
  plan.size = static_cast<int>(plan.members.size());
  const auto own = std::find(plan.members.begin(), plan.members.end(), group.rank());
  plan.rank = static_cast<int>(own - plan.members.begin());
  return plan;
}

absl::Status CheckPairCount(int sender, int64_t sent, int receiver, int64_t expected) {
  if (sent == expected) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("AllToAllV: rank ", sender, " sends ", sent,
                                          " elements to rank ", receiver, ", which expects ",
                                          expected));
}

}  // namespace tandem::comm
