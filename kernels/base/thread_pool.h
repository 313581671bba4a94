// A fixed set of threads for one process's compute. ParallelFor cuts work into tasks that the caller numbers; because
// the cut never depends on the number of threads, neither do the bits of the result.
// A training step is thousands of short loops, and waking a sleeping thread takes longer than many of them: so a thread that has
// run out of work watches for the next loop for some tens of microseconds before it sleeps, if the machine has a core for it.
// Thread rule: ParallelFor may be called from any thread; calls from inside a task run inline, unless that task is its loop's only
// one: then the threads are free, and the inner loop has them.
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
  // `state_`: the loop's number, whether threads may still join it, and how many are in it, the caller not counted.
  static constexpr uint64_t kHelpers = (uint64_t{1} << 31) - 1, kOpen = uint64_t{1} << 31, kOneLoop = uint64_t{1} << 32;

  void Work();
  // Joins the loop in flight, if it is open and not `seen`.
  void Help(uint64_t& seen);
  // True as soon as `ready` holds, false after the time that watching is worth.
  bool Watch(absl::FunctionRef<bool()> ready) const;
  static void RunTasks(Loop& loop);

  const int num_threads_;
  const bool watches_;  // false: sleep at once
  std::atomic<bool> busy_{false};  // a caller has the threads
  Loop* loop_ = nullptr;           // written by that caller while the state is closed
  alignas(64) std::atomic<uint64_t> state_{0};
  alignas(64) std::atomic<int> sleeping_workers_{0};
  std::atomic<bool> caller_sleeps_{false}, stopping_{false};
  absl::Mutex mutex_;        // of the sleepers alone
  absl::CondVar work_, done_;
  std::vector<std::thread> threads_;
};

}  // namespace tandem
