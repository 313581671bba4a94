#include "ps/wire/statistics.h"

#include <algorithm>
#include <numeric>

#include "proto/embedding.pb.h"

namespace tandem::ps {
namespace {

void MergeHistogram(const StepHistogram& part, StepHistogram* total) {
  for (int i = 0; i < part.counts_size(); ++i) {
    if (i < total->counts_size())
      total->set_counts(i, total->counts(i) + part.counts(i));
    else
      total->add_counts(part.counts(i));
  }
  total->set_max(std::max(total->max(), part.max()));
}

TableStatistics* FindOrAdd(uint32_t number, StatisticsReply* total) {
  auto& tables = *total->mutable_tables();
  int place = 0;
  while (place < tables.size() && tables[place].number() < number) ++place;
  if (place == tables.size() || tables[place].number() != number) {
    tables.Add();
    std::rotate(tables.begin() + place, tables.end() - 1, tables.end());
  }
  return &tables[place];
}

void MergeTable(const TableStatistics& part, StatisticsReply* total) {
  TableStatistics* const table = FindOrAdd(part.number(), total);
  table->set_name(part.name());
  table->set_number(part.number());
  table->set_rows(table->rows() + part.rows());
  table->set_memory_bytes(table->memory_bytes() + part.memory_bytes());
  MergeHistogram(part.left_out(), table->mutable_left_out());
  const double rows = static_cast<double>(table->rows());
  table->set_bytes_per_row(rows == 0 ? 0 : static_cast<double>(table->memory_bytes()) / rows);
  ValueGuardStatistics guard = GuardOf(*table);
  guard.Merge(GuardOf(part));
  SetGuard(guard, table);
}

}  // namespace

void StepCounts::Add(uint64_t steps) {
  ++counts_[std::min<uint64_t>(steps, kBuckets - 1)];
  max_ = std::max(max_, steps);
}

uint64_t StepCounts::total() const {
  return std::accumulate(counts_.begin(), counts_.end(), uint64_t{0});
}

void StepCounts::Save(StepHistogram* histogram) const {
  histogram->mutable_counts()->Assign(counts_.begin(), counts_.end());
  histogram->set_max(max_);
}

ValueGuardStatistics GuardOf(const TableStatistics& table) {
  ValueGuardStatistics guard;
  guard.rejected = table.rejected();
  guard.skipped = table.skipped();
  guard.mended = table.mended();
  guard.clipped = table.clipped();
  const TableStatistics::Offender& first = table.first_offender();
  if (table.has_first_offender()) guard.first = {first.id(), first.trainer(), first.step()};
  return guard;
}

void SetGuard(const ValueGuardStatistics& guard, TableStatistics* table) {
  table->set_rejected(guard.rejected);
  table->set_skipped(guard.skipped);
  table->set_mended(guard.mended);
  table->set_clipped(guard.clipped);
  if (!guard.first.has_value()) return;
  TableStatistics::Offender* const first = table->mutable_first_offender();
  first->set_id(guard.first->id);
  first->set_trainer(guard.first->trainer);
  first->set_step(guard.first->step);
}

TableStatistics GuardStatistics(const TableSpec& spec, const ValueGuardStatistics& guard) {
  TableStatistics table;
  table.set_name(spec.name());
  table.set_number(spec.number());
  SetGuard(guard, &table);
  return table;
}

void MergeStatistics(const StatisticsReply& part, StatisticsReply* total) {
  for (const TableStatistics& table : part.tables()) MergeTable(table, total);
  total->set_pulls(total->pulls() + part.pulls());
  total->set_pulled_rows(total->pulled_rows() + part.pulled_rows());
  total->set_pushes(total->pushes() + part.pushes());
  total->set_repeated_pushes(total->repeated_pushes() + part.repeated_pushes());
  total->set_commits(total->commits() + part.commits());
  MergeHistogram(part.staleness(), total->mutable_staleness());
  MergeHistogram(part.outstanding(), total->mutable_outstanding());
  for (int i = 0; i < part.clocks_size(); ++i) {
    if (i < total->clocks_size())
      total->set_clocks(i, std::min(total->clocks(i), part.clocks(i)));
    else
      total->add_clocks(part.clocks(i));
  }
}

}  // namespace tandem::ps
