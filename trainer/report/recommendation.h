// The items that a recommender would show a user next, as JSON.
// Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

namespace tandem::report {

struct RecommendedItem {
  double score = 0;
  std::string id, title;
};

struct Recommendation {
  std::string user;                    // empty: left out
  std::vector<RecommendedItem> items;  // best first
  bool has_titles = false;
  std::vector<std::string> unknown;  // ids of the history that the model does not know
};

// One line: {"user":"7","items":[{"rank":1,"score":2.5,"id":"12","title":"RED MUG"}]}.
std::string JsonOf(const Recommendation& recommendation);

}  // namespace tandem::report
