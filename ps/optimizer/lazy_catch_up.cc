#include "ps/optimizer/lazy_catch_up.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/base/check.h"
#include "kernels/cpu/vector/vectorise.h"

namespace tandem::ps {
namespace {

// Replayed steps between two AtRest checks. A check costs about a step.
constexpr uint64_t kStepsPerLook = 16;
// kBlock numbers decay together in registers. After kFadesPerLook multiplications Fade checks if
// the numbers still change.
constexpr size_t kBlock = 64;
constexpr uint64_t kFadesPerLook = 64;

// Computes x = factor * x + 0, `count` times, rounding each time. Adding 0 turns -0 into +0, like
// the optimizer's sum with a gradient of zero.
inline void FadeBlock(float* x, size_t size, float factor, uint64_t count) {
  float values[kBlock] = {}, before[kBlock];
  std::memcpy(values, x, size * sizeof(float));
  while (count > 0) {
    std::memcpy(before, values, sizeof(values));
    const uint64_t now = std::min(count, kFadesPerLook);
    for (uint64_t step = 0; step < now; ++step) {
      for (size_t i = 0; i < kBlock; ++i) values[i] = factor * values[i] + 0.0f;
    }
    count -= now;
    // Magnitudes never grow, so a number that is equal after several steps was equal after each
    // step.
    if (std::memcmp(before, values, sizeof(values)) == 0) break;
  }
  std::memcpy(x, values, size * sizeof(float));
}

}  // namespace

LazyCatchUp::LazyCatchUp(const SparseOptimizer& optimizer, TableSpec::Mode mode, uint32_t dim)
    : optimizer_(optimizer), mode_(mode), dim_(dim) {
  if (mode == TableSpec::LAZY) return;
  for (size_t run = 0; run < optimizer.num_slot_values(dim) / dim; ++run)
    fading_.push_back(optimizer.slot_fading(run));
  const bool fades =
      std::any_of(fading_.begin(), fading_.end(), [](float factor) { return factor != 1; });
  matter_ = fades || optimizer.weight_decay() > 0;
  remembers_rates_ = matter_ && (exact() || optimizer.weight_decay() > 0);
  if (matter_ && exact()) zero_.resize(dim);
}

void LazyCatchUp::BeginAfter(uint64_t step) {
  runs_.clear();
  begin_ = last_step_ = step;
}

void LazyCatchUp::Add(uint64_t step, double learning_rate, bool skipped) {
  if (step <= last_step_) return;
  const bool follows = step == last_step_ + 1;
  last_step_ = step;
  if (skipped || !remembers_rates_) return;
  const bool same =
      !runs_.empty() && follows && runs_.back().last + 1 == step &&
      std::bit_cast<uint64_t>(runs_.back().learning_rate) == std::bit_cast<uint64_t>(learning_rate);
  if (same)
    runs_.back().last = static_cast<uint32_t>(step);
  else
    runs_.push_back({static_cast<uint32_t>(step), static_cast<uint32_t>(step), learning_rate});
}

void LazyCatchUp::ForEachRun(uint64_t from, uint64_t to,
                             absl::FunctionRef<bool(uint64_t, uint64_t, double)> visit) const {
  auto run = std::partition_point(runs_.begin(), runs_.end(),
                                  [=](const Run& each) { return each.last <= from; });
  for (; run != runs_.end() && run->first <= to; ++run) {
    if (!visit(std::max<uint64_t>(run->first, from + 1), std::min<uint64_t>(run->last, to),
               run->learning_rate))
      return;
  }
}

float LazyCatchUp::WeightDecay(uint64_t from, uint64_t to) const {
  double factor = 1;
  ForEachRun(from, to, [&](uint64_t first, uint64_t last, double rate) {
    const double once = 1.0 - rate * optimizer_.weight_decay();
    factor *= first == last ? once : std::pow(once, static_cast<double>(last - first + 1));
    return true;
  });
  return static_cast<float>(factor);
}

void LazyCatchUp::CatchUp(float* weights, float* slots, uint64_t from, uint64_t to) const {
  if (from >= to) return;
  for (size_t run = 0; run < fading_.size(); ++run) {
    const float factor =
        static_cast<float>(std::pow(double{fading_[run]}, static_cast<double>(to - from)));
    if (factor == 1) continue;
    for (uint32_t i = 0; i < dim_; ++i) slots[run * dim_ + i] *= factor;
  }
  if (optimizer_.weight_decay() == 0) return;
  const float decay = WeightDecay(from, to);
  for (uint32_t i = 0; i < dim_; ++i) weights[i] *= decay;
}

void LazyCatchUp::Replay(float* weights, float* slots, uint64_t from, uint64_t to,
                         absl::FunctionRef<void(uint64_t)> stepped) const {
  uint64_t left = 0;
  double highest_rate = 0;
  ForEachRun(from, to, [&](uint64_t first, uint64_t last, double rate) {
    left += last - first + 1;
    highest_rate = std::max(highest_rate, std::fabs(rate));
    return true;
  });
  const bool may_rest = optimizer_.weight_decay() == 0;
  uint64_t done = 0;
  ForEachRun(from, to, [&](uint64_t first, uint64_t last, double rate) {
    for (uint64_t step = first; step <= last; ++step, ++done, --left) {
      if (may_rest && done % kStepsPerLook == 0 &&
          optimizer_.AtRest(weights, slots, dim_, highest_rate))
        return false;
      optimizer_.Apply(weights, slots, zero_.data(), dim_, step, rate, 1);
      stepped(step);
    }
    return true;
  });
  Fade(slots, left);
}

void LazyCatchUp::Fade(float* slots, uint64_t count) const {
  if (count == 0) return;
  for (size_t run = 0; run < fading_.size(); ++run) {
    const float factor = fading_[run];
    if (factor == 1) continue;
    float* const first = slots + run * dim_;
    kernels::Vectorised([=, dim = size_t{dim_}] {
      for (size_t i = 0; i < dim; i += kBlock)
        FadeBlock(first + i, std::min(kBlock, dim - i), factor, count);
    });
  }
}

}  // namespace tandem::ps
