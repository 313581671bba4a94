// Errors of a run whose numbers are no longer finite (train.non_finite). The code is OutOfRange,
// which every process of the job turns into exit code 70. The message names the step, the number,
// the learning rate and a remedy.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "trainer/tasks/task.h"

namespace tandem::loop {

struct Divergence {
  int64_t step = 0;
  std::string what;          // "loss is NaN"
  double learning_rate = 0;  // of the step's dense update
  bool may_skip = false;     // train.non_finite SKIP would leave the step out
  int64_t saved_step = 0;    // step of the last checkpoint; 0: none
};
absl::Status Diverged(const Divergence& divergence);

// Returns "NaN", "infinite" or "-infinite".
// REQUIRES: `value` is not finite.
std::string NonFiniteText(double value);

// Names an evaluation's first metric that is not finite: "valid/loss is NaN". Returns "" if all are
// finite.
std::string FirstNonFinite(const std::string& prefix, const tasks::Evaluation& evaluation);

}  // namespace tandem::loop
