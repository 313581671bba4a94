#include "trainer/parallel/pipeline/stage_split.h"

#include <algorithm>
#include <limits>

#include "kernels/base/check.h"

namespace tandem::parallel {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

class Splitter {
 public:
  Splitter(const LayersWork& work, int num_stages)
      : num_layers_(static_cast<int>(work.layers.size())), num_stages_(num_stages) {
    sums_.push_back(0);
    for (const double layer : work.layers) sums_.push_back(sums_.back() + layer);
    before_first_ = work.before_first;
    after_last_ = work.after_last;
  }

  // The costliest stage of the best cut.
  double LeastCostliest() const {
    std::vector<std::vector<int>> unused;
    return Best([](double so_far, double stage) { return std::max(so_far, stage); }, unused);
  }
  // The most even cut whose stages cost at most `limit`: that with the least sum of squares.
  std::vector<int> MostEven(double limit) const {
    std::vector<std::vector<int>> begins;
    Best([limit](double so_far,
                 double stage) { return stage > limit ? kNever : so_far + stage * stage; },
         begins);
    std::vector<int> layers(static_cast<size_t>(num_stages_));
    int end = num_layers_;
    for (int stage = num_stages_ - 1; stage >= 0; --stage) {
      const int begin = begins[stage][end];
      layers[stage] = end - begin;
      end = begin;
    }
    return layers;
  }

 private:
  double CostOf(int stage, int begin, int end) const {
    return sums_[end] - sums_[begin] + (stage == 0 ? before_first_ : 0) +
           (stage == num_stages_ - 1 ? after_last_ : 0);
  }

  // Finds the cut whose stages, combined in order by `combine`, come to the least value.
  // begins[s][e] is where stage s begins if it ends at layer e.
  template <class Combine>
  double Best(const Combine& combine, std::vector<std::vector<int>>& begins) const {
    std::vector<double> best(static_cast<size_t>(num_layers_) + 1, kNever);
    best[0] = 0;
    for (int stage = 0; stage < num_stages_; ++stage) {
      std::vector<double> next(best.size(), kNever);
      begins.emplace_back(best.size(), 0);
      for (int end = stage + 1; end <= num_layers_; ++end) {
        for (int begin = stage; begin < end; ++begin) {
          const double value = combine(best[begin], CostOf(stage, begin, end));
          if (value >= next[end]) continue;
          next[end] = value;
          begins[stage][end] = begin;
        }
      }
      best = next;
    }
    return best[num_layers_];
  }

  const int num_layers_, num_stages_;
  std::vector<double> sums_;  // of the first layers
  double before_first_ = 0, after_last_ = 0;
};

}  // namespace

std::vector<int> SplitLayers(const LayersWork& work, int num_stages) {
  TANDEM_CHECK(num_stages >= 1 && num_stages <= static_cast<int>(work.layers.size()))
      << num_stages << " stages of " << work.layers.size() << " layers";
  const Splitter splitter(work, num_stages);
  const double limit = splitter.LeastCostliest();
  return splitter.MostEven(limit * (1 + 1e-12));
}

}  // namespace tandem::parallel
