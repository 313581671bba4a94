#include "trainer/job/nearest_name.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/ascii.h"

namespace tandem {

int EditDistance(std::string_view a, std::string_view b) {
  std::vector<int> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    int diagonal = row[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const int change = diagonal + (absl::ascii_tolower(a[i]) != absl::ascii_tolower(b[j]));
      diagonal = row[j + 1];
      row[j + 1] = std::min({change, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

int TooFar(std::string_view name) {
  return std::max<int>(1, static_cast<int>(name.size()) / 3) + 1;
}

std::string Nearest(std::string_view name, const std::vector<std::string>& names) {
  std::string best;
  int best_distance = TooFar(name);
  for (const std::string& candidate : names) {
    const int distance = EditDistance(name, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace tandem
