#include "trainer/data/text/text_floors.h"

#include <cmath>
#include <vector>

namespace tandem::data {

namespace {

int64_t CountOf(const absl::flat_hash_map<int64_t, int64_t>& counts, int64_t key) {
  const auto found = counts.find(key);
  return found == counts.end() ? 0 : found->second;
}

}  // namespace

double UnigramLoss(const Text& text) {
  std::vector<int64_t> counts(text.vocabulary.size(), 0);
  for (const int32_t symbol : text.train) ++counts[symbol];
  const auto all = static_cast<double>(text.train.size());
  double sum = 0;
  for (const int32_t symbol : text.valid)
    sum -= std::log(static_cast<double>(counts[symbol]) / all);
  return sum / static_cast<double>(text.valid.size());
}

double BigramLoss(const Text& text) {
  BigramCounts counts(text.vocabulary.size());
  for (size_t i = 1; i < text.train.size(); ++i) counts.Add(text.train[i - 1], text.train[i]);
  double sum = 0;
  for (size_t i = 1; i < text.valid.size(); ++i)
    sum += counts.Loss(text.valid[i - 1], text.valid[i]);
  return sum / static_cast<double>(text.valid.size() - 1);
}

void BigramCounts::Add(int64_t first, int64_t second, int64_t count) {
  firsts_[first] += count;
  pairs_[Key(first, second)] += count;
}

double BigramCounts::Loss(int64_t first, int64_t second) const {
  const int64_t pair = CountOf(pairs_, Key(first, second)) + 1,
                all = CountOf(firsts_, first) + vocabulary_size_;
  return -std::log(static_cast<double>(pair) / static_cast<double>(all));
}

}  // namespace tandem::data
