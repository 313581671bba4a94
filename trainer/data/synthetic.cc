#include "trainer/data/synthetic.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <functional>
#include <numeric>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/random.h"

namespace tandem::data {
namespace {

// One stream of the generator's numbers. A name and a step (an item, a user) identify it; draws are
// numbered 0, 1, 2, ...
class Draws {
 public:
  Draws(uint64_t seed, std::string_view name, uint64_t step)
      : key_{seed, StableHash(name)}, step_(step) {}

  uint64_t Below(uint64_t n) { return RandomBelow(key_, step_, next_++, n); }
  double Unit() { return static_cast<double>(Below(uint64_t{1} << 53)) * 0x1p-53; }  // [0, 1)

 private:
  RandomKey key_;
  uint64_t step_;
  uint64_t next_ = 0;
};

// The true distribution. Ids are 1..items. Row `id - 1` of a successor table holds the successors
// of `id`.
class Planted {
 public:
  explicit Planted(const SyntheticOptions& options) : options_(options) {
    PlantZipf();
    PlantSuccessors("synthetic lag 1", lag1_);
    PlantSuccessors("synthetic lag 2", lag2_);
    weights_.resize(options.successors);
    for (int k = 0; k < options.successors; ++k) weights_[k] = options.successors - k;  // 5:4:3:2:1
    const double sum = std::accumulate(weights_.begin(), weights_.end(), 0.0);
    for (double& weight : weights_) weight /= sum;
  }

  // Draws the next item of a user with this history from the mixture, until the item is new.
  uint64_t DrawNext(absl::Span<const uint64_t> history, Draws& draws) const {
    // Unseen items keep a share of percents, so this is never reached.
    constexpr int kMaxAttempts = 1 << 20;
    for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
      const uint64_t id = DrawMixture(history, draws);
      if (std::find(history.begin(), history.end(), id) == history.end()) return id;
    }
    TANDEM_CHECK(false) << " no unseen item in " << kMaxAttempts << " draws";
    return 0;
  }

  // [id] = P(next = id | history); zero for seen items and for id 0.
  std::vector<double> Conditional(absl::Span<const uint64_t> history) const {
    std::vector<double> p(options_.items + 1, 0.0);
    for (int i = 0; i < options_.items; ++i) p[i + 1] = options_.popularity * zipf_[i];
    AddSuccessors(history, 1, lag1_, options_.lag1, p);
    AddSuccessors(history, 2, lag2_, options_.lag2, p);
    for (const uint64_t id : history) p[id] = 0.0;
    const double sum = std::accumulate(p.begin(), p.end(), 0.0);
    for (double& value : p) value /= sum;
    return p;
  }

 private:
  // A random permutation of the ids gets the masses 1 / rank^exponent, so an id says nothing about
  // its popularity.
  void PlantZipf() {
    std::vector<int> order(options_.items);
    std::iota(order.begin(), order.end(), 0);
    Draws draws(options_.seed, "synthetic zipf", 0);
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[draws.Below(i)]);
    zipf_.resize(options_.items);
    double sum = 0;
    for (int rank = 0; rank < options_.items; ++rank) {
      sum += zipf_[order[rank]] = std::pow(rank + 1.0, -options_.zipf_exponent);
    }
    for (double& mass : zipf_) mass /= sum;
    cumulative_zipf_.resize(options_.items);
    std::partial_sum(zipf_.begin(), zipf_.end(), cumulative_zipf_.begin());
  }

  // Chooses distinct successors, none of them the item itself.
  void PlantSuccessors(std::string_view name, Jagged& table) const {
    for (uint64_t id = 1; id <= static_cast<uint64_t>(options_.items); ++id) {
      Draws draws(options_.seed, name, id);
      std::vector<uint64_t> row;
      while (static_cast<int>(row.size()) < options_.successors) {
        const uint64_t next = 1 + draws.Below(options_.items);
        if (next != id && std::find(row.begin(), row.end(), next) == row.end()) row.push_back(next);
      }
      table.Append(row);
    }
  }

  // Leaves out components whose lag the history does not reach, and spreads their share over the
  // others.
  uint64_t DrawMixture(absl::Span<const uint64_t> history, Draws& draws) const {
    const double lag1 = history.empty() ? 0.0 : options_.lag1,
                 lag2 = history.size() < 2 ? 0.0 : options_.lag2;
    const double u = draws.Unit() * (lag1 + lag2 + options_.popularity);
    if (u < lag1) return DrawSuccessor(lag1_.row(history.back() - 1), draws);
    if (u < lag1 + lag2) return DrawSuccessor(lag2_.row(history[history.size() - 2] - 1), draws);
    return 1 + Index(cumulative_zipf_, draws.Unit());
  }

  uint64_t DrawSuccessor(absl::Span<const uint64_t> row, Draws& draws) const {
    double u = draws.Unit();
    for (size_t k = 0; k + 1 < row.size(); ++k) {
      if (u < weights_[k]) return row[k];
      u -= weights_[k];
    }
    return row.back();
  }

  static uint64_t Index(const std::vector<double>& cumulative, double u) {
    const auto place = std::upper_bound(cumulative.begin(), cumulative.end() - 1, u);
    return static_cast<uint64_t>(place - cumulative.begin());
  }

  void AddSuccessors(absl::Span<const uint64_t> history, size_t lag, const Jagged& table,
                     double share, std::vector<double>& p) const {
    if (history.size() < lag) return;
    const absl::Span<const uint64_t> row = table.row(history[history.size() - lag] - 1);
    for (size_t k = 0; k < row.size(); ++k) p[row[k]] += share * weights_[k];
  }

  SyntheticOptions options_;
  std::vector<double> zipf_, cumulative_zipf_;  // [items]
  std::vector<double> weights_;                 // [successors]
  Jagged lag1_, lag2_;                          // [items] rows of `successors` ids
};

// Adds the expected metrics of ranking by the true probabilities: the k-th best item is the target
// with its own probability. Items of equal probability may be in any order.
void AddReachable(std::vector<double> p, RankingMetrics& sum) {
  std::sort(p.begin(), p.end(), std::greater<double>());
  for (size_t k = 0; k < p.size() && p[k] > 0; ++k) AddRank(static_cast<double>(k + 1), p[k], sum);
}

double RankByProbability(const std::vector<double>& p, uint64_t target) {
  TiedRank rank;
  for (const double value : p) {
    rank.higher += value > p[target];
    rank.ties += value == p[target];
  }
  --rank.ties;  // the target itself
  return rank.Half();
}

}  // namespace

SyntheticLog Generate(const SyntheticOptions& options) {
  TANDEM_CHECK(3 <= options.min_length && options.min_length <= options.max_length);
  TANDEM_CHECK_GE(options.items, 2 * options.max_length);
  TANDEM_CHECK(1 <= options.successors && options.successors < options.items);
  TANDEM_CHECK(options.lag1 >= 0 && options.lag2 >= 0 && options.popularity > 0);
  const Planted planted(options);
  SyntheticLog result;
  result.log.num_items = static_cast<uint64_t>(options.items);
  for (uint64_t user = 1; user <= static_cast<uint64_t>(options.users); ++user) {
    Draws draws(options.seed, "synthetic user", user);
    const uint64_t length =
        options.min_length + draws.Below(options.max_length - options.min_length + 1);
    std::vector<uint64_t> history;
    while (history.size() + 1 < length) history.push_back(planted.DrawNext(history, draws));
    const std::vector<double> p = planted.Conditional(history);
    AddReachable(p, result.reachable);
    history.push_back(planted.DrawNext(history, draws));
    result.best_ranks.push_back(RankByProbability(p, history.back()));
    result.log.users.push_back(user);
    result.log.items.Append(history);
  }
  result.reachable = Mean(result.reachable, result.log.users.size());
  return result;
}

absl::Status WriteSequences(const Interactions& log, const std::string& path) {
  const auto failed = [&] {
    return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot be written"));
  };
  std::string text;
  for (int64_t i = 0; i < log.items.size(); ++i) {
    absl::StrAppend(&text, log.users[i]);
    for (const uint64_t item : log.items.row(i)) absl::StrAppend(&text, " ", item);
    text += '\n';
  }
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return failed();
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const absl::Status status = written ? absl::OkStatus() : failed();
  if (std::fclose(file) != 0 && status.ok()) return failed();
  return status;
}

}  // namespace tandem::data
