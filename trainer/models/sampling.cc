#include "trainer/models/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/base/check.h"

namespace tandem::models {

int64_t SampleToken(absl::Span<const float> logits, const SamplingOptions& options, RandomKey key,
                    uint64_t step) {
  TANDEM_CHECK(!logits.empty() && options.temperature >= 0 && options.top_k >= 0);
  const auto logit = [&](int64_t token) {
    return std::isnan(logits[token]) ? -std::numeric_limits<double>::infinity()
                                     : double{logits[token]};
  };
  std::vector<int64_t> best(logits.size());
  std::iota(best.begin(), best.end(), int64_t{0});
  std::stable_sort(best.begin(), best.end(),
                   [&](int64_t a, int64_t b) { return logit(a) > logit(b); });
  const double top = logit(best[0]);
  if (options.temperature == 0 || std::isinf(top)) return best[0];
  if (options.top_k > 0) best.resize(std::min<size_t>(best.size(), options.top_k));

  std::vector<double> mass(best.size());  // cumulative, not yet normalised
  double sum = 0;
  for (size_t i = 0; i < best.size(); ++i)
    mass[i] = sum += std::exp((logit(best[i]) - top) / options.temperature);
  const auto nucleus_end = std::lower_bound(mass.begin(), mass.end() - 1, options.top_p * sum);
  mass.erase(nucleus_end + 1, mass.end());
  const double unit = static_cast<double>(RandomBelow(key, step, 0, uint64_t{1} << 53)) * 0x1p-53;
  return best[std::upper_bound(mass.begin(), mass.end() - 1, unit * mass.back()) - mass.begin()];
}

}  // namespace tandem::models
