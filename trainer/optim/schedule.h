// The learning rate of a step: linear warm-up, then constant, linear decay or half a cosine
// (Loshchilov and Hutter 2017). A pure function of the step, so resuming needs no state.
// Thread rule: a value; any thread.
#pragma once

#include <cstdint>

namespace tandem::optim {

enum class ScheduleKind { CONSTANT, LINEAR, COSINE };

struct Schedule {
  ScheduleKind kind = ScheduleKind::CONSTANT;
  double learning_rate = 1e-3;  // the peak
  double min_learning_rate = 0;
  int64_t warmup_steps = 0;
  int64_t total_steps = 0;  // the step at which LINEAR and COSINE reach the minimum

  // `step` counts from 1. During warm-up: learning_rate * step / (warmup_steps + 1).
  double At(int64_t step) const;
};

}  // namespace tandem::optim
