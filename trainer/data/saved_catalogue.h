// The record that a checkpoint keeps of a recommender's items, as text: line i holds item i's
// training occurrences, a tab and its title. The items' ids are kept elsewhere (id_map.h).
// Thread rule: pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem::data {

// By item; place 0 is no item.
struct SavedCatalogue {
  std::vector<int64_t> training_counts;
  std::vector<std::string> titles;
};

// REQUIRES: no title has a line end; `titles` has one entry per count, or is empty.
std::string CatalogueLines(const std::vector<int64_t>& training_counts,
                           const std::vector<std::string>& titles);
// FailedPrecondition unless there are num_items lines with a count each.
absl::StatusOr<SavedCatalogue> ParseCatalogue(std::string_view lines, uint64_t num_items);

}  // namespace tandem::data
