#include "trainer/loop/replica/divergence_guard.h"

#include "absl/strings/str_cat.h"
#include "trainer/loop/replica/divergence.h"

namespace tandem::loop {

absl::Status DivergenceGuard::Decide(int64_t step, const std::string& what) {
  if (stops_)
    return Diverged({step, what, optimizer_.LearningRate(step), /*may_skip=*/true, saved_step_});
  if (num_skipped_ == 0 && output_ != nullptr)
    output_->Note(absl::StrCat("step ", step, " is skipped: ", what, "; later ones are counted"));
  ++num_skipped_;
  return absl::OkStatus();
}

absl::Status DivergenceGuard::End(int64_t step, const std::string& what) const {
  return Diverged({step, what, optimizer_.LearningRate(step), /*may_skip=*/false, saved_step_});
}

}  // namespace tandem::loop
