#include "trainer/optim/schedule.h"

#include <algorithm>
#include <cmath>

namespace tandem::optim {

double Schedule::At(int64_t step) const {
  if (step <= warmup_steps)
    return learning_rate * static_cast<double>(step) / static_cast<double>(warmup_steps + 1);
  if (kind == ScheduleKind::CONSTANT || total_steps <= warmup_steps) return learning_rate;
  const double done = static_cast<double>(step - 1 - warmup_steps) /
                      static_cast<double>(total_steps - warmup_steps);
  const double progress = std::min(1.0, std::max(0.0, done));
  const double left = kind == ScheduleKind::LINEAR
                          ? 1 - progress
                          : 0.5 * (1 + std::cos(3.14159265358979323846 * progress));
  return min_learning_rate + (learning_rate - min_learning_rate) * left;
}

}  // namespace tandem::optim
