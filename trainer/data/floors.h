// Baselines that learn nothing, for the test split: what a trained model has to beat. Counts are taken over items[:-2] of
// every user, the part that neither validation nor test looks at.
// On LastFM with its 99 negatives they give the published floors to four digits: the full ranking by Summarise (half
// ties), the sampled one by SummariseExpected (random order of ties). Pure functions, callable from any thread.
#pragma once

#include <vector>

#include "trainer/data/interactions.h"
#include "trainer/data/ranking.h"

namespace tandem::data {

// One entry per user with at least 3 items, in the log's order (SequenceSampler's evaluated users).
struct FloorRanks {
  std::vector<TiedRank> full;     // among all items but the seen ones
  std::vector<TiedRank> sampled;  // among the user's negatives; empty where none were given
};

// Score of an item: how often it occurs.
FloorRanks PopularityRanks(const Interactions& interactions, const Jagged* negatives = nullptr);

// Score of an item: how often it directly followed the user's latest item; equal counts are ordered by popularity.
FloorRanks TransitionRanks(const Interactions& interactions, const Jagged* negatives = nullptr);

}  // namespace tandem::data
