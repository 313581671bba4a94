#include "trainer/data/neighbour_floors.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/container/flat_hash_map.h"
#include "trainer/data/training_counts.h"

namespace tandem::data {

namespace {

constexpr size_t kLastItems = 10, kWindow = 10;
constexpr double kLeastLikeness = 0.3;

struct Neighbour {
  uint64_t item = 0;
  float weight = 0;
};
using Neighbours = std::vector<std::vector<Neighbour>>;  // by item

absl::Span<const uint64_t> LastOf(absl::Span<const uint64_t> items) {
  return items.last(std::min(items.size(), kLastItems));
}

// Ranks each evaluated user's test target by the summed weights of their last items' neighbours.
FloorRanks RankByNeighbours(const Interactions& log, const Jagged* negatives,
                            const Neighbours& neighbours) {
  FloorRanks ranks;
  std::vector<float> scores(log.num_items + 1, 0);
  for (int64_t user = 0; user < log.items.size(); ++user) {
    const absl::Span<const uint64_t> items = log.items.row(user);
    if (items.size() < kMinEvaluationItems) continue;
    const absl::Span<const uint64_t> history = items.first(items.size() - 1);
    std::fill(scores.begin(), scores.end(), 0.0f);
    for (const uint64_t item : LastOf(history)) {
      for (const Neighbour& neighbour : neighbours[item])
        scores[neighbour.item] += neighbour.weight;
    }
    ranks.full.push_back(TiedRankOf(scores, items.back(), history));
    if (negatives == nullptr) continue;
    std::vector<float> others;
    for (const uint64_t item : negatives->row(user)) others.push_back(scores[item]);
    ranks.sampled.push_back(TiedRankAmong(scores[items.back()], others));
  }
  return ranks;
}

Neighbours FollowersOf(const Interactions& log) {
  const std::vector<int64_t> popularity = TrainingCounts(log);
  std::vector<absl::flat_hash_map<uint64_t, int64_t>> counts(log.num_items + 1);
  for (int64_t user = 0; user < log.items.size(); ++user) {
    const absl::Span<const uint64_t> items = TrainingPart(log.items.row(user));
    for (size_t i = 0; i < items.size(); ++i) {
      for (size_t j = i + 1; j < items.size() && j <= i + kWindow; ++j)
        ++counts[items[i]][items[j]];
    }
  }
  Neighbours followers(counts.size());
  for (size_t item = 0; item < counts.size(); ++item) {
    const double of_item = std::sqrt(static_cast<double>(popularity[item]) + 5);
    for (const auto& [other, count] : counts[item]) {
      const double of_other = std::pow(static_cast<double>(popularity[other]) + 20, 0.35);
      const auto weight = static_cast<float>(static_cast<double>(count) / of_item / of_other);
      followers[item].push_back({other, weight});
    }
  }
  return followers;
}

// A title as distinct words with weights, of length 1.
struct WeightedTitle {
  std::vector<size_t> words;
  std::vector<double> weights;
};

std::vector<WeightedTitle> Weighted(const Titles& titles, size_t* num_words) {
  absl::flat_hash_map<std::string, size_t> numbers;
  std::vector<int64_t> titles_with;
  std::vector<WeightedTitle> weighted(titles.of_item.size());
  int64_t num_titles = 0;
  for (size_t item = 0; item < weighted.size(); ++item) {
    const std::vector<std::string> words = WordsOf(titles.of_item[item]);
    num_titles += !words.empty();
    for (const std::string& word : std::set<std::string>(words.begin(), words.end())) {
      const size_t number = numbers.try_emplace(word, numbers.size()).first->second;
      titles_with.resize(numbers.size());
      ++titles_with[number];
      weighted[item].words.push_back(number);
    }
  }
  for (WeightedTitle& title : weighted) {
    double squares = 0;
    for (const size_t word : title.words) {
      title.weights.push_back(
          std::log(static_cast<double>(num_titles) / static_cast<double>(titles_with[word])));
      squares += title.weights.back() * title.weights.back();
    }
    for (double& weight : title.weights) weight /= std::sqrt(std::max(squares, 1e-30));
  }
  *num_words = numbers.size();
  return weighted;
}

Neighbours AlikeTitles(const Titles& titles) {
  size_t num_words = 0;
  const std::vector<WeightedTitle> weighted = Weighted(titles, &num_words);
  std::vector<std::vector<std::pair<size_t, double>>> with_word(num_words);  // items, weights
  for (size_t item = 0; item < weighted.size(); ++item) {
    for (size_t i = 0; i < weighted[item].words.size(); ++i)
      with_word[weighted[item].words[i]].emplace_back(item, weighted[item].weights[i]);
  }
  Neighbours alike(weighted.size());
  std::vector<double> likeness(weighted.size(), 0);
  for (size_t item = 0; item < weighted.size(); ++item) {
    std::fill(likeness.begin(), likeness.end(), 0.0);
    for (size_t i = 0; i < weighted[item].words.size(); ++i) {
      for (const auto& [other, weight] : with_word[weighted[item].words[i]])
        likeness[other] += weight * weighted[item].weights[i];
    }
    for (size_t other = 1; other < likeness.size(); ++other) {
      if (likeness[other] > kLeastLikeness)
        alike[item].push_back({other, static_cast<float>(likeness[other])});
    }
  }
  return alike;
}

}  // namespace

FloorRanks CooccurrenceRanks(const Interactions& interactions, const Jagged* negatives) {
  return RankByNeighbours(interactions, negatives, FollowersOf(interactions));
}

FloorRanks TitleRanks(const Interactions& interactions, const Titles& titles,
                      const Jagged* negatives) {
  return RankByNeighbours(interactions, negatives, AlikeTitles(titles));
}

}  // namespace tandem::data
