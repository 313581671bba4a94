#include "trainer/loop/staleness_watch.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace tandem::loop {

int64_t MostSteps(const StepHistogram& before, const StepHistogram& now) {
  for (int i = now.counts_size() - 1; i >= 0; --i) {
    const uint64_t earlier = i < before.counts_size() ? before.counts(i) : 0;
    if (now.counts(i) == earlier) continue;
    return i + 1 == now.counts_size() ? static_cast<int64_t>(now.max()) : i;  // the last one counts everything above
  }
  return 0;
}

absl::StatusOr<int64_t> StalenessWatch::Take(absl::Time deadline) {
  ASSIGN_OR_RETURN(StatisticsReply statistics, std::exchange(asked_, {}).Wait(deadline));
  const int64_t most = MostSteps(last_, statistics.staleness());
  last_ = std::move(*statistics.mutable_staleness());
  return most;
}

absl::StatusOr<std::string> StalenessWatch::Describe(absl::Time deadline) const {
  ASSIGN_OR_RETURN(const StatisticsReply statistics, client_->Statistics().Wait(deadline));
  const StepHistogram& staleness = statistics.staleness();
  std::string text = absl::StrCat("staleness: pulls missed up to ", staleness.max(), " steps of the slowest trainer (pulls by steps missed:");
  for (int i = 0; i < staleness.counts_size(); ++i) {
    if (staleness.counts(i) == 0) continue;
    absl::StrAppend(&text, " ", i, i + 1 == staleness.counts_size() ? "+" : "", ": ", staleness.counts(i));
  }
  return absl::StrCat(text, "); up to ", statistics.outstanding().max(), " steps of a trainer under way");
}

}  // namespace tandem::loop
