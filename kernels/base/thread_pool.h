// A fixed set of threads for the compute of one process. ParallelFor runs tasks that the caller
// numbers. The split into tasks never depends on the number of threads, so neither do the bits of
// the result.
// A training step has thousands of short loops, and waking a thread takes longer than many of them.
// So an idle thread spins for some tens of microseconds before it sleeps, if there is a core for
// it.
// Thread rule: any thread may call ParallelFor. A call from inside a task runs inline, unless the
// task is the only one of its loop: then the inner loop gets the free threads.
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
  // `num_threads` counts the caller of ParallelFor; 1 starts no thread.
  // REQUIRES: num_threads >= 1.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }

  // Runs task(0) .. task(num_tasks - 1), each once, in any order on any thread. Returns when all
  // have run. The threads help one caller at a time: a call that comes meanwhile runs its tasks on
  // its own thread.
  void ParallelFor(int64_t num_tasks, absl::FunctionRef<void(int64_t)> task);

 private:
  struct Loop;  // one ParallelFor in flight
  // Parts of `state_`: the loop's number, a bit that lets threads join, and the number of threads
  // in the loop without the caller.
  static constexpr uint64_t kHelpers = (uint64_t{1} << 31) - 1, kOpen = uint64_t{1} << 31,
                            kOneLoop = uint64_t{1} << 32;

  void Work();
  // Joins the loop in flight, if the loop is open and its number is not `seen`.
  void Help(uint64_t& seen);
  // Spins until `ready`. Returns false after the time that spinning is worth.
  bool Watch(absl::FunctionRef<bool()> ready) const;
  static void RunTasks(Loop& loop);

  const int num_threads_;
  const bool watches_;             // false: sleep at once, without spinning
  std::atomic<bool> busy_{false};  // a caller uses the threads
  Loop* loop_ = nullptr;           // written by that caller while the state is closed
  alignas(64) std::atomic<uint64_t> state_{0};
  alignas(64) std::atomic<int> sleeping_workers_{0};
  std::atomic<bool> caller_sleeps_{false}, stopping_{false};
  absl::Mutex mutex_;  // for sleeping threads only
  absl::CondVar work_, done_;
  std::vector<std::thread> threads_;
};

}  // namespace tandem
