#include "trainer/data/ranking.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/base/check.h"

namespace tandem::data {
namespace {

// `!(other <= target)` is also true if either is NaN.
bool IsHigher(float other, float target) { return !(other <= target); }

}  // namespace

TiedRank TiedRankAmong(float target_score, absl::Span<const float> other_scores) {
  TiedRank rank;
  for (const float score : other_scores) {
    rank.higher += IsHigher(score, target_score);
    rank.ties += score == target_score;
  }
  return rank;
}

TiedRank TiedRankOf(absl::Span<const float> scores, uint64_t target,
                    absl::Span<const uint64_t> seen) {
  TANDEM_CHECK_GT(target, uint64_t{0});
  TANDEM_CHECK_LT(target, scores.size());
  const float target_score = scores[target];
  std::vector<uint64_t> excluded(seen.begin(), seen.end());
  excluded.push_back(0);
  excluded.push_back(target);
  std::sort(excluded.begin(), excluded.end());
  excluded.erase(std::unique(excluded.begin(), excluded.end()), excluded.end());
  // Counts everything and subtracts the few excluded ids, which keeps the long loop free of
  // look-ups.
  TiedRank rank = TiedRankAmong(target_score, scores);
  for (const uint64_t id : excluded) {
    if (id >= scores.size()) break;
    rank.higher -= IsHigher(scores[id], target_score);
    rank.ties -= scores[id] == target_score;
  }
  return rank;
}

double RankOf(absl::Span<const float> scores, uint64_t target, absl::Span<const uint64_t> seen) {
  return TiedRankOf(scores, target, seen).Half();
}

std::vector<uint64_t> TopIds(absl::Span<const float> scores, uint64_t target,
                             absl::Span<const uint64_t> seen, int count) {
  TANDEM_CHECK_GT(count, 0);
  std::vector<bool> excluded(scores.size(), false);
  if (!excluded.empty()) excluded[0] = true;
  for (const uint64_t id : seen) {
    if (id < scores.size() && id != target) excluded[id] = true;
  }
  // NaN comes before all numbers, consistent with IsHigher.
  const auto better = [&](uint64_t a, uint64_t b) {
    const bool a_nan = std::isnan(scores[a]), b_nan = std::isnan(scores[b]);
    if (a_nan != b_nan) return a_nan;
    if (a_nan || scores[a] == scores[b]) return a < b;
    return scores[a] > scores[b];
  };
  std::vector<uint64_t> top;  // a heap whose front is the worst
  for (uint64_t id = 0; id < scores.size(); ++id) {
    if (excluded[id]) continue;
    if (top.size() == static_cast<size_t>(count)) {
      if (!better(id, top.front())) continue;
      std::pop_heap(top.begin(), top.end(), better);
      top.pop_back();
    }
    top.push_back(id);
    std::push_heap(top.begin(), top.end(), better);
  }
  std::sort_heap(top.begin(), top.end(), better);
  return top;
}

double RankAmong(float target_score, absl::Span<const float> other_scores) {
  return TiedRankAmong(target_score, other_scores).Half();
}

void AddRank(double rank, double weight, RankingMetrics& sum) {
  const double gain = weight / std::log2(rank + 1.0);
  if (rank <= 1) sum.hr1 += weight;
  if (rank <= 5) sum.hr5 += weight, sum.ndcg5 += gain;
  if (rank <= 10) sum.hr10 += weight, sum.ndcg10 += gain;
  if (rank <= 20) sum.hr20 += weight, sum.ndcg20 += gain;
  sum.mrr += weight / rank;
}

RankingMetrics Mean(RankingMetrics sum, size_t num_users) {
  const double n = static_cast<double>(std::max<size_t>(num_users, 1));
  for (double* metric :
       {&sum.hr1, &sum.hr5, &sum.hr10, &sum.hr20, &sum.ndcg5, &sum.ndcg10, &sum.ndcg20, &sum.mrr}) {
    *metric /= n;
  }
  return sum;
}

double MeanLogRank(absl::Span<const double> ranks) {
  double sum = 0;
  for (const double rank : ranks) sum += std::log(rank);
  return sum / static_cast<double>(std::max<size_t>(ranks.size(), 1));
}

RankingMetrics Summarise(absl::Span<const double> ranks) {
  RankingMetrics sum;
  for (const double rank : ranks) AddRank(rank, 1.0, sum);
  return Mean(sum, ranks.size());
}

RankingMetrics Summarise(absl::Span<const TiedRank> ranks) {
  RankingMetrics sum;
  for (const TiedRank& rank : ranks) AddRank(rank.Half(), 1.0, sum);
  return Mean(sum, ranks.size());
}

RankingMetrics SummariseExpected(absl::Span<const TiedRank> ranks) {
  RankingMetrics sum;
  for (const TiedRank& rank : ranks) {
    const double weight = 1.0 / static_cast<double>(rank.ties + 1);
    for (int64_t place = 0; place <= rank.ties; ++place) {
      AddRank(1.0 + static_cast<double>(rank.higher + place), weight, sum);
    }
  }
  return Mean(sum, ranks.size());
}

}  // namespace tandem::data
