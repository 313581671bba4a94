#include "trainer/data/floors.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "kernels/base/check.h"
#include "trainer/data/training_counts.h"

namespace tandem::data {
namespace {

using IdSet = absl::flat_hash_set<uint64_t>;
using IdCounts = absl::flat_hash_map<uint64_t, int64_t>;

int64_t CountOf(const IdCounts& counts, uint64_t id) {
  const auto found = counts.find(id);
  return found == counts.end() ? 0 : found->second;
}

// Occurrences per item. Ranks one item in the whole catalogue from the sorted counts, without
// visiting the catalogue.
class Popularity {
 public:
  explicit Popularity(const Interactions& log) : num_items_(static_cast<int64_t>(log.num_items)) {
    for (int64_t u = 0; u < log.items.size(); ++u) {
      for (const uint64_t item : TrainingPart(log.items.row(u))) ++counts_[item];
    }
    for (const auto& [item, count] : counts_) sorted_.push_back(count);
    std::sort(sorted_.begin(), sorted_.end());
  }

  int64_t operator[](uint64_t item) const { return CountOf(counts_, item); }

  // REQUIRES: `excluded` does not hold the target.
  TiedRank RankAmongAll(uint64_t target, const IdSet& excluded) const {
    const int64_t count = (*this)[target];
    const auto [low, high] = std::equal_range(sorted_.begin(), sorted_.end(), count);
    TiedRank rank;
    rank.higher = sorted_.end() - high;
    const int64_t never_seen = num_items_ - static_cast<int64_t>(sorted_.size());
    rank.ties = (count == 0 ? never_seen : high - low) - 1;
    for (const uint64_t item : excluded) {
      rank.higher -= (*this)[item] > count;
      rank.ties -= (*this)[item] == count;
    }
    return rank;
  }

 private:
  int64_t num_items_;
  IdCounts counts_;
  std::vector<int64_t> sorted_;  // the counts of counted items, ascending
};

// How often each item directly followed each other item.
class Transitions {
 public:
  explicit Transitions(const Interactions& log) {
    for (int64_t u = 0; u < log.items.size(); ++u) {
      const absl::Span<const uint64_t> items = TrainingPart(log.items.row(u));
      for (size_t i = 1; i < items.size(); ++i) ++rows_[items[i - 1]][items[i]];
    }
  }

  const IdCounts& After(uint64_t item) const {
    const auto row = rows_.find(item);
    return row == rows_.end() ? none_ : row->second;
  }

 private:
  absl::flat_hash_map<uint64_t, IdCounts> rows_;
  const IdCounts none_;
};

template <typename Score>
TiedRank Among(absl::Span<const uint64_t> candidates, uint64_t target, const Score& score) {
  TiedRank rank;
  for (const uint64_t item : candidates) {
    rank.higher += score(item) > score(target);
    rank.ties += score(item) == score(target);
  }
  return rank;
}

// full(target, history, seen) ranks in the catalogue; `seen` is the history without the target.
// sampled(target, history, candidates) ranks among the candidates.
template <typename Full, typename Sampled>
FloorRanks RankUsers(const Interactions& log, const Jagged* negatives, const Full& full,
                     const Sampled& sampled) {
  TANDEM_CHECK(negatives == nullptr || negatives->size() == log.items.size());
  FloorRanks ranks;
  for (int64_t u = 0; u < log.items.size(); ++u) {
    const absl::Span<const uint64_t> items = log.items.row(u);
    if (items.size() < kMinEvaluationItems) continue;
    const absl::Span<const uint64_t> history = items.first(items.size() - 1);
    IdSet seen(history.begin(), history.end());
    seen.erase(items.back());
    ranks.full.push_back(full(items.back(), history, seen));
    if (negatives != nullptr)
      ranks.sampled.push_back(sampled(items.back(), history, negatives->row(u)));
  }
  return ranks;
}

// Orders by transition count, then popularity. An item that never followed the latest item ranks
// below all that did. So the catalogue splits into the latest item's few successors and the rest,
// ordered by popularity.
TiedRank TransitionRankAmongAll(uint64_t target, const IdCounts& after,
                                const Popularity& popularity, const IdSet& seen) {
  const std::pair target_score(CountOf(after, target), popularity[target]);
  TiedRank among_successors;
  IdSet excluded = seen;
  for (const auto& [item, count] : after) {
    if (item == target || seen.contains(item)) continue;
    const std::pair score(count, popularity[item]);
    among_successors.higher += score > target_score;
    among_successors.ties += score == target_score;
    excluded.insert(item);
  }
  if (target_score.first > 0) return among_successors;
  TiedRank rank = popularity.RankAmongAll(target, excluded);
  rank.higher += among_successors.higher;
  return rank;
}

}  // namespace

FloorRanks PopularityRanks(const Interactions& interactions, const Jagged* negatives) {
  const Popularity popularity(interactions);
  return RankUsers(
      interactions, negatives,
      [&](uint64_t target, absl::Span<const uint64_t>, const IdSet& seen) {
        return popularity.RankAmongAll(target, seen);
      },
      [&](uint64_t target, absl::Span<const uint64_t>, absl::Span<const uint64_t> candidates) {
        return Among(candidates, target, [&](uint64_t item) { return popularity[item]; });
      });
}

FloorRanks TransitionRanks(const Interactions& interactions, const Jagged* negatives) {
  const Popularity popularity(interactions);
  const Transitions transitions(interactions);
  return RankUsers(
      interactions, negatives,
      [&](uint64_t target, absl::Span<const uint64_t> history, const IdSet& seen) {
        return TransitionRankAmongAll(target, transitions.After(history.back()), popularity, seen);
      },
      [&](uint64_t target, absl::Span<const uint64_t> history,
          absl::Span<const uint64_t> candidates) {
        const IdCounts& after = transitions.After(history.back());
        return Among(candidates, target, [&](uint64_t item) {
          return std::pair(CountOf(after, item), popularity[item]);
        });
      });
}

}  // namespace tandem::data
