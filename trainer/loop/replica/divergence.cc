#include "trainer/loop/replica/divergence.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace tandem::loop {

absl::Status Diverged(const Divergence& divergence) {
  const std::string skip =
      divergence.may_skip ? ", or leave such steps out with train.non_finite=SKIP" : "";
  const std::string saved =
      divergence.saved_step > 0
          ? absl::StrCat("the checkpoint of step ", divergence.saved_step, " stands")
          : std::string("no checkpoint was written before");
  return absl::OutOfRangeError(absl::StrCat(
      "step ", divergence.step, ": ", divergence.what, "; learning rate ", divergence.learning_rate,
      "; lower optimizer.learning_rate, bound gradients with optimizer.max_grad_norm", skip, "; ",
      saved));
}

std::string NonFiniteText(double value) {
  return std::isnan(value) ? "NaN" : value > 0 ? "infinite" : "-infinite";
}

std::string FirstNonFinite(const std::string& prefix, const tasks::Evaluation& evaluation) {
  for (const auto& [name, value] : evaluation.metrics) {
    if (!std::isfinite(value)) return absl::StrCat(prefix, name, " is ", NonFiniteText(value));
  }
  if (std::isfinite(evaluation.selection)) return "";
  return absl::StrCat("what decides which evaluation is best is ",
                      NonFiniteText(evaluation.selection));
}

}  // namespace tandem::loop
