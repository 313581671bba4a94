// Baselines that learn nothing: what a trained model has to beat. Interactions: on the test split, from counts over
// items[:-2] of every user, the part that neither validation nor test looks at. Text: on the validation part, from counts
// over the training part.
// On LastFM with its 99 negatives they give the published floors to four digits: the full ranking by Summarise (half
// ties), the sampled one by SummariseExpected (random order of ties). Pure functions, callable from any thread.
#pragma once

#include <vector>

#include "trainer/data/interactions.h"
#include "trainer/data/ranking.h"
#include "trainer/data/text.h"

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

// Mean nats per symbol of the validation part, each predicted by its share of the training part.
double UnigramLoss(const Text& text);

// Mean nats per symbol but the first of the validation part, each predicted by how often it followed the symbol before it
// in the training part, plus one for every symbol of the vocabulary.
double BigramLoss(const Text& text);

}  // namespace tandem::data
