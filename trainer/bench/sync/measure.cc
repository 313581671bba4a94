#include "trainer/bench/sync/measure.h"

#include "trainer/bench/members/members.h"
#include "trainer/cli/process/failure.h"

namespace tandem::bench {

std::optional<SyncResult> Measure(const SyncPoint& point, int* exit_code) {
  const auto outcome = RunMembers({.command = "sync",
                                   .what = &point,
                                   .servers = point.way() == SyncPoint::RING ? 0 : point.servers(),
                                   .trainers = point.trainers(),
                                   .bits_per_second = point.bits_per_second()});
  if (!outcome.ok()) {
    *exit_code = cli::ReportError(outcome.status());
    return std::nullopt;
  }
  if (const cli::Supervisor::Outcome& ended = outcome->processes; ended.exit_code != 0) {
    // A member that somebody killed does not say how this command ended.
    const bool killed = !ended.stopped && ended.exit_code > 128;
    *exit_code =
        killed ? cli::ReportError(absl::UnavailableError(ended.cause)) : cli::ReportOutcome(ended);
    return std::nullopt;
  }
  return ResultOf(point, outcome->reports);
}

}  // namespace tandem::bench
