// A fixed set of threads for one process's compute. ParallelFor cuts work into tasks that the caller numbers; because
// the cut never depends on the number of threads, neither do the bits of the result.
// Thread rule: ParallelFor may be called from any thread; calls from inside a task run inline.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"

namespace tandem {

class ThreadPool {
 public:
  // `num_threads` counts the caller of ParallelFor: 1 starts no thread. REQUIRES: num_threads >= 1.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }

  // Runs task(0) .. task(num_tasks - 1), each once, in any order on any thread, and returns when all have run.
  void ParallelFor(int64_t num_tasks, absl::FunctionRef<void(int64_t)> task);

 private:
  struct Loop;  // one ParallelFor in flight
  void Work();
  static void RunTasks(Loop& loop);

  const int num_threads_;
  absl::Mutex mutex_;
  Loop* loop_ ABSL_GUARDED_BY(mutex_) = nullptr;
  uint64_t generation_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace tandem
