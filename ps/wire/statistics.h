// What a server reports of itself (StatisticsReply): histograms of steps, and replies added up, over the workers of a server as over
// servers. Thread rule: values and free functions.
#pragma once

#include <array>
#include <cstdint>

#include "proto/embedding.pb.h"
#include "ps/wire/value_guard.h"

namespace tandem::ps {

// How often so many steps were seen.
class StepCounts {
 public:
  void Add(uint64_t steps);
  uint64_t max() const { return max_; }
  uint64_t total() const;
  void Save(StepHistogram* histogram) const;

 private:
  static constexpr size_t kBuckets = 17;  // the last: so many and more

  std::array<uint64_t, kBuckets> counts_{};
  uint64_t max_ = 0;
};

ValueGuardStatistics GuardOf(const TableStatistics& table);
void SetGuard(const ValueGuardStatistics& guard, TableStatistics* table);

// Of one table, with nothing else.
TableStatistics GuardStatistics(const TableSpec& spec, const ValueGuardStatistics& guard);

// Adds what another part reports: tables by number, counts and histograms; of a trainer's clocks the lower one stays, of offenders the
// first.
void MergeStatistics(const StatisticsReply& part, StatisticsReply* total);

}  // namespace tandem::ps
