#include "trainer/loop/step_loader.h"

namespace tandem::loop {

StepLoader::StepLoader(const tasks::Task* task, int64_t first_step, int64_t last_step)
    : task_(task), thread_([this, first_step, last_step] { Run(first_step, last_step); }) {}

StepLoader::~StepLoader() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
}

void StepLoader::Run(int64_t first_step, int64_t last_step) {
  for (int64_t step = first_step; step <= last_step; ++step) {
    std::unique_ptr<tasks::StepInput> input = task_->Prepare(step);
    absl::MutexLock lock(&mutex_);
    auto room = [this]()
                    ABSL_NO_THREAD_SAFETY_ANALYSIS { return stopping_ || ready_.size() < kAhead; };
    mutex_.Await(absl::Condition(&room));
    if (stopping_) return;
    ready_.push_back(std::move(input));
  }
  absl::MutexLock lock(&mutex_);
  finished_ = true;
}

std::unique_ptr<tasks::StepInput> StepLoader::Next() {
  absl::MutexLock lock(&mutex_);
  auto filled = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return finished_ || !ready_.empty(); };
  mutex_.Await(absl::Condition(&filled));
  if (ready_.empty()) return nullptr;
  std::unique_ptr<tasks::StepInput> input = std::move(ready_.front());
  ready_.pop_front();
  return input;
}

}  // namespace tandem::loop
