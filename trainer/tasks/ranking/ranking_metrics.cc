#include "trainer/tasks/ranking/ranking_metrics.h"

#include "kernels/base/check.h"

namespace tandem::tasks {

void AddRankingMetrics(const std::string& prefix, const data::RankingMetrics& ranking,
                       Metrics* metrics) {
  const Metrics named{{"hr@1", ranking.hr1},       {"hr@5", ranking.hr5},
                      {"hr@10", ranking.hr10},     {"hr@20", ranking.hr20},
                      {"ndcg@5", ranking.ndcg5},   {"ndcg@10", ranking.ndcg10},
                      {"ndcg@20", ranking.ndcg20}, {"mrr", ranking.mrr}};
  for (const auto& [name, value] : named) (*metrics)[prefix + name] = value;
}

std::vector<bool> ColdTargets(const data::Interactions& log, data::Split split,
                              const std::vector<int64_t>& training_counts, int64_t cold_below) {
  std::vector<bool> cold;
  if (cold_below == 0) return cold;
  for (int64_t user = 0; user < log.items.size(); ++user) {
    const absl::Span<const uint64_t> items = log.items.row(user);
    if (items.size() < data::kMinEvaluationItems) continue;
    const uint64_t target = items[items.size() - (split == data::Split::TEST ? 1 : 2)];
    cold.push_back(training_counts[target] < cold_below);
  }
  return cold;
}

void AddColdAndWarm(absl::Span<const double> ranks, const std::vector<bool>& cold,
                    Metrics* metrics) {
  if (cold.empty()) return;
  TANDEM_CHECK_EQ(ranks.size(), cold.size());
  for (const bool wanted : {true, false}) {
    std::vector<double> group;
    for (size_t user = 0; user < ranks.size(); ++user) {
      if (cold[user] == wanted) group.push_back(ranks[user]);
    }
    if (group.empty()) continue;
    const std::string prefix = wanted ? "cold_" : "warm_";
    const data::RankingMetrics ranking = data::Summarise(group);
    (*metrics)[prefix + "hr@10"] = ranking.hr10;
    (*metrics)[prefix + "ndcg@10"] = ranking.ndcg10;
    (*metrics)[prefix + "mean_log_rank"] = data::MeanLogRank(group);
    (*metrics)[prefix + "users"] = static_cast<double>(group.size());
  }
}

}  // namespace tandem::tasks
