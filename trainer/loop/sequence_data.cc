#include "trainer/loop/sequence_data.h"

#include <fstream>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "trainer/data/floors.h"
#include "trainer/data/ranking.h"
#include "trainer/loop/progress.h"
#include "trainer/loop/sequence_rec_task.h"

namespace tandem::loop {

namespace {

constexpr size_t kMaxFloorInteractions = 20'000'000;  // counting transitions of a larger log would take over ten seconds

std::string ReachablePath(const std::string& log_path) { return log_path + ".reachable"; }

void AddMetrics(const std::string& prefix, const data::RankingMetrics& metrics, ReferenceColumn& column) {
  column.metrics[prefix + "hr@10"] = metrics.hr10;
  column.metrics[prefix + "ndcg@10"] = metrics.ndcg10;
}

ReferenceColumn FloorColumn(std::string name, const data::FloorRanks& ranks) {
  ReferenceColumn column{std::move(name), {}};
  AddMetrics("", data::Summarise(ranks.full), column);
  // Sampled floors tie often: the published figures take ties in random order.
  if (!ranks.sampled.empty()) AddMetrics("sampled_", data::SummariseExpected(ranks.sampled), column);
  return column;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SequenceData>> SequenceData::Read(const Job& job) {
  const auto read = job.data().format() == PAIRS ? data::ReadPairs : data::ReadSequences;
  ASSIGN_OR_RETURN(data::Interactions interactions, read(job.data().path(), job.data().num_items()));
  std::unique_ptr<data::Jagged> negatives;
  if (!job.data().negatives_path().empty()) {
    ASSIGN_OR_RETURN(data::Jagged lists, data::ReadNegatives(job.data().negatives_path(), interactions));
    negatives = std::make_unique<data::Jagged>(std::move(lists));
  }
  return std::make_unique<SequenceData>(std::move(interactions), std::move(negatives), job.data().path());
}

std::string SequenceData::Description() const {
  return absl::StrCat(CountText(static_cast<double>(interactions_.users.size())), " users, ",
                      CountText(static_cast<double>(interactions_.num_items)), " items, ",
                      CountText(static_cast<double>(interactions_.items.values.size())), " interactions");
}

std::unique_ptr<Task> SequenceData::MakeTask(const Job& job, const TaskEnvironment& environment) const {
  return std::make_unique<SequenceRecTask>(job, this, environment);
}

std::vector<ReferenceColumn> SequenceData::References() const {
  std::vector<ReferenceColumn> columns;
  if (interactions_.items.values.size() <= kMaxFloorInteractions) {
    columns.push_back(FloorColumn("popularity", data::PopularityRanks(interactions_, negatives_.get())));
    columns.push_back(FloorColumn("transitions", data::TransitionRanks(interactions_, negatives_.get())));
  }
  ReferenceColumn reachable{"best reachable", {}};
  std::ifstream file(ReachablePath(path_));
  std::string name;
  double value;
  while (file >> name >> value) reachable.metrics[name] = value;
  if (!reachable.metrics.empty()) columns.push_back(std::move(reachable));
  return columns;
}

absl::Status WriteReachable(const std::string& path, const data::RankingMetrics& reachable) {
  std::ofstream file(ReachablePath(path));
  file << "hr@10 " << reachable.hr10 << "\nndcg@10 " << reachable.ndcg10 << "\n";
  file.close();
  if (!file) return absl::NotFoundError(absl::StrCat("cannot write ", ReachablePath(path)));
  return absl::OkStatus();
}

}  // namespace tandem::loop
