// Baselines that learn nothing; a trained model must beat them.
// - Interactions: on the test split, from counts over items[:-2] of every user. Neither validation
//   nor test looks at that part.
// - Text: on the validation part, from counts over the training part.
// On LastFM with its 99 negatives the baselines match the published floors to four digits: the full
// ranking by Summarise (half ties), the sampled one by SummariseExpected (random order of ties).
// Thread rule: pure functions; any thread.
#pragma once

#include <vector>

#include "trainer/data/interactions.h"
#include "trainer/data/ranking.h"
#include "trainer/data/text.h"

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

// The mean nats per symbol of the validation part. The prediction of a symbol is its share of the
// training part.
double UnigramLoss(const Text& text);

// The mean nats per symbol of the validation part, without its first symbol. The prediction of a
// symbol counts how often it followed the previous symbol in the training part. One is added to the
// count of every symbol of the vocabulary.
double BigramLoss(const Text& text);

}  // namespace tandem::data
