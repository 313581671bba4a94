// Baselines that learn nothing; a trained model must beat them. They rank the test split, from
// counts over items[:-2] of every user. Neither validation nor test looks at that part.
// On LastFM with its 99 negatives the baselines match the published floors to four digits: the full
// ranking by Summarise (half ties), the sampled one by SummariseExpected (random order of ties).
// Thread rule: pure functions; any thread.
#pragma once

#include <vector>

#include "trainer/data/interactions.h"
#include "trainer/data/ranking.h"

namespace tandem::data {

// One entry per user with at least 3 items, in the log's order (SequenceSampler's evaluated users).
struct FloorRanks {
  std::vector<TiedRank> full;     // among all unseen items
  std::vector<TiedRank> sampled;  // among the user's negatives; empty if none were given
};

// The score of an item is its number of occurrences.
FloorRanks PopularityRanks(const Interactions& interactions, const Jagged* negatives = nullptr);

// The score of an item is how often it directly followed the user's latest item. Equal counts are
// ordered by popularity.
FloorRanks TransitionRanks(const Interactions& interactions, const Jagged* negatives = nullptr);

}  // namespace tandem::data
