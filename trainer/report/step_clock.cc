#include "trainer/report/step_clock.h"

namespace tandem::report {

void StepClock::RecordPoint(size_t number) {
  if (!stream_->on_cuda() || !stream_->status().ok()) return;
  if (points_.size() <= number)
    points_.push_back(std::make_unique<Event>(stream_->device(), Event::Kind::TIMED));
  stream_->Fail(points_[number]->Record(stream_->queue()));
}

void StepClock::Begin() {
  intervals_.clear();
  RecordPoint(0);
  watch_.Lap();
}

void StepClock::Mark(Part part) {
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
    milliseconds[intervals_[i].part] += seconds * 1e3;
  }
  return milliseconds;
}

}  // namespace tandem::report
