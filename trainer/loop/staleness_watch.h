// How stale the rows were that servers gave to all trainers, for the run's records: servers count it (StatisticsReply), this asks
// them without holding up the step. Thread rule: the step's thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ps/client.h"

namespace tandem::loop {

class StalenessWatch {
 public:
  explicit StalenessWatch(ps::Client* client) : client_(client) {}

  // Sends the question that Take waits for.
  void Ask() { asked_ = client_->Statistics(); }
  // The most steps of the slowest trainer that a pull missed between the last two questions; above 15 the most of the whole run.
  // REQUIRES: Ask.
  absl::StatusOr<int64_t> Take(absl::Time deadline);
  // A line on the whole run.
  absl::StatusOr<std::string> Describe(absl::Time deadline) const;

 private:
  ps::Client* client_;
  rpc::Future<StatisticsReply> asked_;
  StepHistogram last_;
};

// The most steps that `now` counts more often than `before`; 0 if there are none.
int64_t MostSteps(const StepHistogram& before, const StepHistogram& now);

}  // namespace tandem::loop
