// What parameter servers report of themselves (StatisticsReply), for a run's records: how stale the rows were that they gave to all
// trainers, asked for without holding up the step, and what became of values that would have ruined a table.
// Thread rule: the step's thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ps/client/client.h"
#include "trainer/comm/process_group.h"

namespace tandem::report {

class ServerWatch {
 public:
  explicit ServerWatch(ps::Client* client) : client_(client) {}

  // Sends the question that TakeStaleness waits for.
  void Ask() { asked_ = client_->Statistics(); }
  // The most steps of the slowest trainer that a pull missed between the last two questions; above 15 the most of the whole run.
  // REQUIRES: Ask.
  absl::StatusOr<int64_t> TakeStaleness(absl::Time deadline);

 private:
  ps::Client* client_;
  rpc::Future<StatisticsReply> asked_;
  StepHistogram last_;
};

// The most steps that `now` counts more often than `before`; 0 if there are none.
int64_t MostSteps(const StepHistogram& before, const StepHistogram& now);
// What ranks other than 0 tell, added up, at rank 0; nothing at the others. Collective.
absl::StatusOr<StatisticsReply> GatherStatistics(comm::ProcessGroup& group, const StatisticsReply& own, absl::Time deadline);
// Lines on the whole run: staleness, if rows may be stale; each table that was given values to guard against.
std::vector<std::string> ServerNotes(const StatisticsReply& statistics, bool may_be_stale);

}  // namespace tandem::report
