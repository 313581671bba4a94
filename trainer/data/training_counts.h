// How often training may see each item: its occurrences in items[:-2] of every user, the part that
// neither validation nor test looks at.
// Thread rule: pure functions; any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "trainer/data/interactions.h"

namespace tandem::data {

inline absl::Span<const uint64_t> TrainingPart(absl::Span<const uint64_t> items) {
  return items.first(items.size() - std::min<size_t>(items.size(), 2));
}

// By item, [num_items + 1].
inline std::vector<int64_t> TrainingCounts(const Interactions& log) {
  std::vector<int64_t> counts(log.num_items + 1, 0);
  for (int64_t user = 0; user < log.items.size(); ++user) {
    for (const uint64_t item : TrainingPart(log.items.row(user))) ++counts[item];
  }
  return counts;
}

}  // namespace tandem::data
