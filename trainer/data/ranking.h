// Ranks and ranking metrics. A rank is 1 + the candidates that score higher + half the ties. So a
// model whose scores are all equal gets about k / candidates, not 1. NaN counts as higher, on
// either side, because a broken model must not look good.
// Thread rule: pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace tandem::data {

// The place of a target among its candidates, before ties are resolved.
struct TiedRank {
  int64_t higher = 0;
  int64_t ties = 0;  // candidates with the same score, without the target

  double Half() const {
    return 1.0 + static_cast<double>(higher) + 0.5 * static_cast<double>(ties);
  }
};

// Full ranking: scores[i] is the score of id i. scores[0] (padding) and the ids in `seen` are not
// candidates. `seen` may repeat ids and hold ids beyond the scores. `seen` may hold the target,
// which is ranked anyway.
// REQUIRES: 0 < target < size.
TiedRank TiedRankOf(absl::Span<const float> scores, uint64_t target,
                    absl::Span<const uint64_t> seen);
double RankOf(absl::Span<const float> scores, uint64_t target, absl::Span<const uint64_t> seen);

// The `count` best candidates of a full ranking, best first, equal scores by ascending id. Fewer if
// there are fewer candidates. `target` is 0 if there is none.
// REQUIRES: count > 0.
std::vector<uint64_t> TopIds(absl::Span<const float> scores, uint64_t target,
                             absl::Span<const uint64_t> seen, int count);

// Ranking among given candidates, such as fixed negatives.
TiedRank TiedRankAmong(float target_score, absl::Span<const float> other_scores);
double RankAmong(float target_score, absl::Span<const float> other_scores);

// Means over all users. A hit is rank <= k. NDCG@k is 1 / log2(rank + 1) of a hit, else 0 (one
// relevant item per user).
struct RankingMetrics {
  double hr1 = 0, hr5 = 0, hr10 = 0, hr20 = 0;
  double ndcg5 = 0, ndcg10 = 0, ndcg20 = 0;
  double mrr = 0;
};

// For weighted means: AddRank adds `weight` times one rank's metrics; Mean divides every metric by
// the number of users.
void AddRank(double rank, double weight, RankingMetrics& sum);
RankingMetrics Mean(RankingMetrics sum, size_t num_users);

// The mean natural logarithm of the ranks; 0 for no users.
double MeanLogRank(absl::Span<const double> ranks);

// All metrics are zero for no users. The second form counts ties half, like RankOf.
RankingMetrics Summarise(absl::Span<const double> ranks);
RankingMetrics Summarise(absl::Span<const TiedRank> ranks);

// The expectation over a uniformly random order of each user's ties. An evaluator that sorts
// shuffled candidates reports this value on average. Equals Summarise if there are no ties.
RankingMetrics SummariseExpected(absl::Span<const TiedRank> ranks);

}  // namespace tandem::data
