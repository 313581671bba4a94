// A generator of interaction logs with planted structure, for machines without real data. The true
// distribution of every next item is known, and so is the best score that any model can reach.
// Next item ~ lag1 * S1(previous) + lag2 * S2(the one before) + popularity * Zipf, restricted to
// items that the user has not had and renormalised. S1 and S2 give each item a few successors of
// decreasing weight. Transition counts can learn S1 and Zipf; only a model that looks two items
// back learns S2.
// Thread rule: a pure function of the options.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "trainer/data/interactions.h"
#include "trainer/data/ranking.h"

namespace tandem::data {

struct SyntheticOptions {
  uint64_t seed = 1;
  int users = 4000;
  // REQUIRES: at least 2 * max_length, so that unseen items keep a share of the probability.
  int items = 1000;
  int min_length = 10;
  int max_length = 30;  // a user's length is uniform in [min_length, max_length]
  int successors = 5;   // REQUIRES: 1 <= successors < items
  double lag1 = 0.45;
  double lag2 = 0.35;
  double popularity = 0.20;  // REQUIRES: positive, because only Zipf reaches every item
  double zipf_exponent = 1.0;
};

struct SyntheticLog {
  Interactions log;  // users 1..users, ids 1..items
  // The expected metrics of ranking the unseen items by their true probability at each user's last
  // position. Exact given the histories; full ranking, test targets. No model does better except by
  // luck.
  RankingMetrics reachable;
  // The ranks of the drawn items in that ranking, one per user: the score that the best model gets
  // on this log.
  std::vector<double> best_ranks;
};

// REQUIRES: 3 <= min_length <= max_length, and the limits above.
SyntheticLog Generate(const SyntheticOptions& options);

// Writes the SEQUENCES format that ReadSequences reads.
absl::Status WriteSequences(const Interactions& log, const std::string& path);

}  // namespace tandem::data
