#include "trainer/parallel/combined_sync.h"

#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace tandem::parallel {

GradientSync& CombinedSync::only() const {
  TANDEM_CHECK_EQ(parts_.size(), 1u);
  return *parts_[0];
}

void CombinedSync::BeginStep(int num_passes) {
  for (const auto& part : parts_) part->BeginStep(num_passes);
}

void CombinedSync::BeginPass(Context& context, int pass) {
  for (const auto& part : parts_) part->BeginPass(context, pass);
}

void CombinedSync::Finish(Context& context) {
  for (const auto& part : parts_) part->Finish(context);
}

std::optional<std::string> CombinedSync::KeptBack() const {
  for (const auto& part : parts_) {
    if (std::optional<std::string> name = part->KeptBack()) return name;
  }
  return std::nullopt;
}

void CombinedSync::OnBucket(std::function<void(size_t)> on_bucket) {
  only().OnBucket(std::move(on_bucket));
}
void CombinedSync::Replay() { only().Replay(); }
void CombinedSync::Reduce(size_t bucket) { only().Reduce(bucket); }

uint64_t CombinedSync::gradient_bytes() const {
  uint64_t bytes = 0;
  for (const auto& part : parts_) bytes += part->gradient_bytes();
  return bytes;
}

void CombinedSync::PullWeights(uint64_t step) {
  for (const auto& part : parts_) part->PullWeights(step);
}

absl::Status CombinedSync::AwaitWeights(absl::Time deadline) {
  for (const auto& part : parts_) RETURN_IF_ERROR(part->AwaitWeights(deadline));
  return absl::OkStatus();
}

void CombinedSync::AddEntries(optim::DenseState* state) const {
  for (const auto& part : parts_) part->AddEntries(state);
}

absl::Status CombinedSync::ReadState(optim::DenseState* state, absl::Time deadline) const {
  for (const auto& part : parts_) RETURN_IF_ERROR(part->ReadState(state, deadline));
  return absl::OkStatus();
}

absl::Status CombinedSync::WriteState(const optim::DenseState* state, absl::Time deadline) const {
  for (const auto& part : parts_) RETURN_IF_ERROR(part->WriteState(state, deadline));
  return absl::OkStatus();
}

}  // namespace tandem::parallel
