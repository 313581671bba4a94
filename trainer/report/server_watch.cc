#include "trainer/report/server_watch.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/random.h"
#include "kernels/base/status_macros.h"
#include "proto/embedding.pb.h"
#include "trainer/comm/gather_bytes.h"

namespace tandem::report {
namespace {

std::string StalenessNote(const StatisticsReply& statistics) {
  const StepHistogram& staleness = statistics.staleness();
  std::string text = absl::StrCat("staleness: pulls missed up to ", staleness.max(),
                                  " steps of the slowest trainer (pulls by steps missed:");
  for (int i = 0; i < staleness.counts_size(); ++i) {
    if (staleness.counts(i) == 0) continue;
    absl::StrAppend(&text, " ", i, i + 1 == staleness.counts_size() ? "+" : "", ": ",
                    staleness.counts(i));
  }
  return absl::StrCat(text, "); up to ", statistics.outstanding().max(),
                      " steps of a trainer under way");
}

}  // namespace

int64_t MostSteps(const StepHistogram& before, const StepHistogram& now) {
  for (int i = now.counts_size() - 1; i >= 0; --i) {
    const uint64_t earlier = i < before.counts_size() ? before.counts(i) : 0;
    if (now.counts(i) == earlier) continue;
    // The last bin counts everything above.
    return i + 1 == now.counts_size() ? static_cast<int64_t>(now.max()) : i;
  }
  return 0;
}

absl::Status ServerWatch::BeforeStep(const StepRecord& record, absl::Time /*deadline*/) {
  if (record.logged) asked_ = tables_->Statistics();
  return absl::OkStatus();
}

absl::Status ServerWatch::AfterStep(StepRecord& record, absl::Time deadline) {
  if (!record.logged) return absl::OkStatus();
  ASSIGN_OR_RETURN(StatisticsReply statistics, std::exchange(asked_, {}).Wait(deadline));
  record.staleness = MostSteps(last_, statistics.staleness());
  last_ = std::move(*statistics.mutable_staleness());
  return absl::OkStatus();
}

absl::StatusOr<StatisticsReply> GatherStatistics(comm::ProcessGroup& group,
                                                 const StatisticsReply& own, absl::Time deadline) {
  ASSIGN_OR_RETURN(
      const std::vector<std::string> gathered,
      comm::GatherBytes(group, own.SerializeAsString(), StableHash("statistics"), deadline));
  StatisticsReply total;
  for (size_t rank = 1; rank < gathered.size(); ++rank) {
    StatisticsReply part;
    if (!part.ParseFromString(gathered[rank])) {
      return absl::InternalError(
          absl::StrCat("the statistics of rank ", rank, " are not a well-formed message"));
    }
    ps::MergeStatistics(part, &total);
  }
  return total;
}

std::vector<std::string> ServerNotes(const StatisticsReply& statistics, bool may_be_stale) {
  std::vector<std::string> notes;
  if (may_be_stale) notes.push_back(StalenessNote(statistics));
  for (const TableStatistics& table : statistics.tables()) {
    if (!table.has_first_offender() && table.clipped() == 0) continue;
    std::string& note = notes.emplace_back(absl::StrCat(
        "table ", table.name(), ": row gradients that were not finite: ", table.skipped(),
        " dropped, ", table.mended(), " mended, ", table.rejected(), " messages refused; ",
        table.clipped(), " rows clipped"));
    const TableStatistics::Offender& first = table.first_offender();
    if (!table.has_first_offender()) continue;
    absl::StrAppend(&note, "; the first: id ", first.id(), " of trainer ", first.trainer(),
                    " in step ", first.step());
  }
  return notes;
}

}  // namespace tandem::report
