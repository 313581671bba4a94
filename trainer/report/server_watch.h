// Statistics that parameter servers report of themselves (StatisticsReply), for a run's records.
// They show how stale the pulled rows of all trainers were, without delaying the step. They also
// show what happened to values that would have ruined a table.
// Thread rule: the step's thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/embedding.pb.h"
#include "ps/client/table_admin.h"
#include "trainer/comm/process_group.h"
#include "trainer/report/step_observer.h"

namespace tandem::report {

// Gives logged steps their staleness: the most steps of the slowest trainer that a pull missed
// between the last two requests. If above 15: the most of the whole run.
class ServerWatch final : public StepObserver {
 public:
  explicit ServerWatch(ps::TableAdmin* tables) : tables_(tables) {}

  // Asks the servers early, so that the step need not wait for the answer.
  absl::Status BeforeStep(const StepRecord& record, absl::Time deadline) override;
  absl::Status AfterStep(StepRecord& record, absl::Time deadline) override;

 private:
  ps::TableAdmin* tables_;
  rpc::Future<StatisticsReply> asked_;
  StepHistogram last_;
};

// The largest number of steps whose count in `now` exceeds its count in `before`; 0 if there is
// none.
int64_t MostSteps(const StepHistogram& before, const StepHistogram& now);
// Collective. Rank 0 gets the sum of the statistics of all other ranks, without its own. Other
// ranks get nothing.
absl::StatusOr<StatisticsReply> GatherStatistics(comm::ProcessGroup& group,
                                                 const StatisticsReply& own, absl::Time deadline);
// Lines about the whole run: the staleness, if rows may be stale, and each table that was given
// values it guards against.
std::vector<std::string> ServerNotes(const StatisticsReply& statistics, bool may_be_stale);

}  // namespace tandem::report
