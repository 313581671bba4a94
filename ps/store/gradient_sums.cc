#include "ps/store/gradient_sums.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/types/span.h"
#include "ps/wire/step.h"

namespace tandem::ps {

double SquaredNorm(const float* x, size_t dim) {
  double lanes[8] = {};
  size_t i = 0;
  for (; i + 8 <= dim; i += 8) {
    for (size_t lane = 0; lane < 8; ++lane) {
      const double value = x[i + lane];
      lanes[lane] += value * value;
    }
  }
  for (size_t lane = 0; i < dim; ++i, ++lane) lanes[lane] += double{x[i]} * double{x[i]};
  double total = 0;
  for (double lane : lanes) total += lane;
  return total;
}

uint32_t GradientSums::SumAll(size_t pending_row, uint64_t step, bool counts, float* sum) {
  const size_t dim = spec_.dim();
  const PendingGradients::Gradient* gradient = &pending_.first(pending_row);
  Decode(*gradient, sum);
  while ((gradient = pending_.next(*gradient)) != nullptr) {
    Decode(*gradient, addend_.data());
    for (size_t i = 0; i < dim; ++i) sum[i] += addend_[i];
  }
  const uint32_t count = pending_.count(pending_row);
  // REJECT checked each gradient when its message came.
  if (count == 1 && spec_.non_finite() == TableSpec::REJECT) return count;
  if (AllFinite({sum, dim})) return count;
  return SumMended(pending_row, step, counts, sum);
}

uint32_t GradientSums::SumMended(size_t pending_row, uint64_t step, bool counts, float* sum) {
  const bool skip = spec_.non_finite() == TableSpec::SKIP,
             clip = spec_.non_finite() == TableSpec::CLIP;
  std::vector<float> values(spec_.dim());
  std::fill_n(sum, values.size(), 0.0f);
  uint32_t added = 0, trainer = 0;
  bool sum_finite = true;
  for (auto* gradient = &pending_.first(pending_row); gradient != nullptr;
       gradient = pending_.next(*gradient)) {
    Decode(*gradient, values.data());
    const auto sender = static_cast<uint32_t>(pending_.SequenceOf(*gradient) >> kSequenceBits);
    const bool finite = AllFinite(values);
    if (!finite && counts && (skip || clip)) {
      ++(clip ? guarded_.mended : guarded_.skipped);
      guarded_.NoteOffender({pending_.ids()[pending_row], sender, step});
    }
    if (!finite && skip) continue;
    if (clip) ZeroNonFinite(absl::MakeSpan(values));
    for (size_t i = 0; i < values.size(); ++i) sum[i] += values[i];
    ++added;
    if (sum_finite && !AllFinite({sum, values.size()})) {
      sum_finite = false;
      trainer = sender;
    }
  }
  return sum_finite ? added : MendSum(pending_row, step, trainer, added, counts, sum);
}

uint32_t GradientSums::MendSum(size_t pending_row, uint64_t step, uint32_t trainer, uint32_t added,
                               bool counts, float* sum) {
  const ValueGuardStatistics::Offender offender{pending_.ids()[pending_row], trainer, step};
  switch (spec_.non_finite()) {
    case TableSpec::CLIP:
      ZeroNonFinite({sum, spec_.dim()});
      break;
    case TableSpec::SKIP:
      std::fill_n(sum, spec_.dim(), 0.0f);
      added = 0;
      break;
    default:  // REJECT: the norm of such a step saturates
      added = 0;
      if (!counts) break;
      absl::Status rejected = guarded_.NoteRejectedSum(spec_.name(), offender);
      if (!overflow_.ok() && overflow_id_ <= offender.id) return added;
      overflow_ = std::move(rejected);
      overflow_id_ = offender.id;
      return added;
  }
  if (counts) {
    ++(spec_.non_finite() == TableSpec::CLIP ? guarded_.mended : guarded_.skipped);
    guarded_.NoteOffender(offender);
  }
  return added;
}

float GradientSums::Clip(const float* sum, float scale) {
  const double norm = std::sqrt(SquaredNorm(sum, spec_.dim())) * std::fabs(double{scale});
  if (!(norm > spec_.max_row_norm())) return scale;
  ++guarded_.clipped;
  return static_cast<float>(scale * (spec_.max_row_norm() / norm));
}

}  // namespace tandem::ps
