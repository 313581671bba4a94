#include "trainer/remote/task_threads.h"

#include <utility>

namespace tandem::remote {

bool TaskThreads::Run(std::function<void()> task) {
  absl::MutexLock lock(&mutex_);
  if (stopping_) return false;
  if (num_idle_ > 0) {
    --num_idle_;
  } else if (threads_.size() < max_threads_) {
    threads_.emplace_back([this] { Work(); });
  } else {
    return false;
  }
  tasks_.push_back(std::move(task));
  return true;
}

void TaskThreads::Work() {
  auto woken = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stopping_ || !tasks_.empty(); };
  while (true) {
    std::function<void()> task;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(&woken));
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
    task = nullptr;  // destroys what the task holds before the thread is idle
    absl::MutexLock lock(&mutex_);
    ++num_idle_;
  }
}

void TaskThreads::Stop() {
  std::vector<std::thread> threads;
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    threads.swap(threads_);
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace tandem::remote
