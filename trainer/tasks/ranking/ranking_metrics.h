// The names of a ranking's figures: hr@10, ndcg@10, mrr and so on, and cold_ and warm_ of them.
// Thread rule: pure functions; any thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "trainer/data/ranking.h"
#include "trainer/data/sequence_sampler.h"

namespace tandem::tasks {

using Metrics = std::map<std::string, double>;

void AddRankingMetrics(const std::string& prefix, const data::RankingMetrics& ranking,
                       Metrics* metrics);

// For each evaluated user, in the log's order: whether the split's target has fewer than
// `cold_below` training occurrences. Empty if cold_below is 0.
std::vector<bool> ColdTargets(const data::Interactions& log, data::Split split,
                              const std::vector<int64_t>& training_counts, int64_t cold_below);
// Adds hr@10, ndcg@10, mean_log_rank and users of the cold and of the warm users. Leaves out a
// group without users, and both if `cold` is empty. REQUIRES: else one entry per rank.
void AddColdAndWarm(absl::Span<const double> ranks, const std::vector<bool>& cold,
                    Metrics* metrics);

}  // namespace tandem::tasks
