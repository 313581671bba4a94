// The events of a run for TensorBoard, in the run's folder. Scalars of logged steps and figures of
// evaluations, each at its step.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/report/events/event_file.h"
#include "trainer/report/step_observer.h"

namespace tandem::report {

// Every error of this class is ResourceExhausted and names the file.
class RunEvents {
 public:
  // Removes the events of older runs in `folder`.
  static absl::StatusOr<std::unique_ptr<RunEvents>> BeginAnew(const std::string& folder);
  // Goes on with the older run in `folder`, whose files stay. Readers drop the older run's steps
  // after `last_step`. An evaluation of `last_step` that is made again shows twice, with equal
  // figures.
  static absl::StatusOr<std::unique_ptr<RunEvents>> BeginAfter(const std::string& folder,
                                                               int64_t last_step);

  // Each hands its records to the system, so that a reader may follow the run.
  // REQUIRES: the record is complete, with its time.
  absl::Status AddStep(const StepRecord& record);
  absl::Status AddEvaluation(int64_t step, const std::map<std::string, double>& metrics);

 private:
  explicit RunEvents(std::unique_ptr<EventFile> file) : file_(std::move(file)) {}

  const std::unique_ptr<EventFile> file_;
};

}  // namespace tandem::report
