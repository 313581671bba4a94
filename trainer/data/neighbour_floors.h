// Baselines from the neighbours of a user's last items: what others bought soon after them, and
// what has a similar title. Stronger than popularity and transitions, and still without learning.
// They rank the test split, from counts over items[:-2] of every user (data/floors.h).
// Thread rule: pure functions; any thread.
#pragma once

#include "trainer/data/floors.h"
#include "trainer/data/titles.h"

namespace tandem::data {

// The score of item c is the sum over the user's last ten items i of n / sqrt(p(i) + 5) /
// (p(c) + 20)^0.35. Here n counts how often c came within ten items after i, and p occurrences.
FloorRanks CooccurrenceRanks(const Interactions& interactions, const Jagged* negatives = nullptr);

// The score of item c is the sum over the user's last ten items of the likeness of titles, where it
// is above 0.3. Likeness is the cosine of the titles' distinct words, weighted by
// log(titles / titles with the word).
FloorRanks TitleRanks(const Interactions& interactions, const Titles& titles,
                      const Jagged* negatives = nullptr);

}  // namespace tandem::data
