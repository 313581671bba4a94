#include "trainer/report/step_clock.h"

namespace tandem::report {

void StepClock::RecordPoint(size_t number) {
  if (!stream_->on_cuda() || !stream_->status().ok()) return;
  if (points_.size() <= number)
    points_.push_back(std::make_unique<Event>(stream_->device(), Event::Kind::TIMED));
  stream_->Fail(points_[number]->Record(stream_->queue()));
}

absl::Status StepClock::BeforeStep(const StepRecord& /*record*/, absl::Time /*deadline*/) {
  intervals_.clear();
  RecordPoint(0);
  watch_.Lap();
  return absl::OkStatus();
}

void StepClock::AfterPart(StepPart part) {
  intervals_.push_back({part, watch_.Lap()});
  RecordPoint(intervals_.size());
}

std::array<double, StepClock::kNumParts> StepClock::Milliseconds() {
  std::array<double, kNumParts> milliseconds = {};
  if (stream_->on_cuda() && !stream_->Wait().ok()) return milliseconds;
  for (size_t i = 0; i < intervals_.size(); ++i) {
    double seconds = intervals_[i].seconds;
    if (stream_->on_cuda()) {
      const absl::StatusOr<double> on_device = points_[i]->SecondsUntil(*points_[i + 1]);
      stream_->Fail(on_device.status());
      seconds = on_device.value_or(0);
    }
    milliseconds[static_cast<size_t>(intervals_[i].part)] += seconds * 1e3;
  }
  return milliseconds;
}

absl::Status StepClock::AfterStep(StepRecord& record, absl::Time /*deadline*/) {
  if (!record.logged) return absl::OkStatus();
  const std::array<double, kNumParts> milliseconds = Milliseconds();
  const auto of = [&](StepPart part) { return milliseconds[static_cast<size_t>(part)]; };
  record.compute_ms = of(StepPart::COMPUTE);
  record.collective_ms = of(StepPart::COLLECTIVE);
  record.pull_ms = of(StepPart::PULL);
  record.push_ms = of(StepPart::PUSH);
  return absl::OkStatus();
}

}  // namespace tandem::report
