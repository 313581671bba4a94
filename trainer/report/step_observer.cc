#include "trainer/report/step_observer.h"

#include "kernels/base/status_macros.h"

namespace tandem::report {

void StepObservers::Add(StepObserver* observer) {
  if (observer != nullptr) observers_.push_back(observer);
}

absl::Status StepObservers::BeforeStep(const StepRecord& record, absl::Time deadline) {
  for (StepObserver* observer : observers_) RETURN_IF_ERROR(observer->BeforeStep(record, deadline));
  return absl::OkStatus();
}

void StepObservers::AfterPart(StepPart part) {
  for (StepObserver* observer : observers_) observer->AfterPart(part);
}

absl::Status StepObservers::AfterStep(StepRecord& record, absl::Time deadline) {
  for (StepObserver* observer : observers_) RETURN_IF_ERROR(observer->AfterStep(record, deadline));
  return absl::OkStatus();
}

absl::Status StepObservers::Finish(absl::Time deadline) {
  for (StepObserver* observer : observers_) RETURN_IF_ERROR(observer->Finish(deadline));
  return absl::OkStatus();
}

}  // namespace tandem::report
