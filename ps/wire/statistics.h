// The statistics that a server reports (StatisticsReply): histograms of steps, and sums of replies.
// Replies are summed over the workers of a server and over servers.
// Thread rule: values and free functions.
#pragma once

#include <array>
#include <cstdint>

#include "ps/wire/value_guard.h"

namespace tandem {
class StatisticsReply;  // proto/embedding.pb.h
class StepHistogram;    // proto/embedding.pb.h
class TableSpec;        // proto/embedding.pb.h
class TableStatistics;  // proto/embedding.pb.h
}  // namespace tandem

namespace tandem::ps {

// A histogram of step counts: how often each number of steps was seen.
class StepCounts {
 public:
  void Add(uint64_t steps);
  uint64_t max() const { return max_; }
  uint64_t total() const;
  void Save(StepHistogram* histogram) const;

 private:
  static constexpr size_t kBuckets = 17;  // the last bucket counts kBuckets - 1 steps and more

  std::array<uint64_t, kBuckets> counts_{};
  uint64_t max_ = 0;
};

ValueGuardStatistics GuardOf(const TableStatistics& table);
void SetGuard(const ValueGuardStatistics& guard, TableStatistics* table);

// Statistics of one table that have nothing but `guard`.
TableStatistics GuardStatistics(const TableSpec& spec, const ValueGuardStatistics& guard);

// Adds the statistics of another part to `total`: tables by number, counts and histograms. Keeps
// the lower clock of each trainer and the first offender.
void MergeStatistics(const StatisticsReply& part, StatisticsReply* total);

}  // namespace tandem::ps
