// Errors of a run whose numbers are not finite any more (train.non_finite): OutOfRange, which every process of the job turns into exit
// code 70. The message names step, number and learning rate, and what to do.
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
  int64_t saved_step = 0;    // whose checkpoint stands; 0: there is none
};
absl::Status Diverged(const Divergence& divergence);

// "NaN", "infinite" or "-infinite". REQUIRES: `value` is not finite.
std::string NonFiniteText(double value);

// The first metric of an evaluation that is not finite: "valid/loss is NaN"; "" if all are.
std::string FirstNonFinite(const std::string& prefix, const tasks::Evaluation& evaluation);

}  // namespace tandem::loop
