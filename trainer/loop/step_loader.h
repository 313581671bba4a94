// Prepares the next steps' batches on its own thread, so that sampling and merging of ids cost the
// step no time.
// Thread rule: one thread calls Next.
#pragma once

#include <deque>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "trainer/tasks/task.h"

namespace tandem::loop {

class StepLoader {
 public:
  // Prepares steps first_step .. last_step, in order.
  // REQUIRES: `task` outlives the loader.
  StepLoader(const tasks::Task* task, int64_t first_step, int64_t last_step);
  ~StepLoader();

  // Returns the next step's input; null after the last step.
  std::unique_ptr<tasks::StepInput> Next();

 private:
  static constexpr size_t kAhead = 2;
  void Run(int64_t first_step, int64_t last_step);

  const tasks::Task* task_;
  absl::Mutex mutex_;
  std::deque<std::unique_ptr<tasks::StepInput>> ready_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tandem::loop
