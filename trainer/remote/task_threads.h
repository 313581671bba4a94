// Threads for tasks that may wait on other processes. A blocked task must never keep another task
// from running, or two processes that call each other would wait forever. So every task in flight
// has a thread, up to a limit. Threads are kept for later tasks.
// Thread rule: Run from any thread; Stop once, not from a task.
#pragma once

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace tandem::remote {

class TaskThreads {
 public:
  explicit TaskThreads(size_t max_threads) : max_threads_(max_threads) {}
  ~TaskThreads() { Stop(); }
  TaskThreads(const TaskThreads&) = delete;
  TaskThreads& operator=(const TaskThreads&) = delete;

  // Returns false, and does not run the task, if all threads are busy or Stop was called.
  bool Run(std::function<void()> task);
  // Waits for the tasks in flight.
  void Stop();

 private:
  void Work();

  const size_t max_threads_;
  absl::Mutex mutex_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  size_t num_idle_ ABSL_GUARDED_BY(mutex_) = 0;  // waiting threads, minus queued tasks
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem::remote
