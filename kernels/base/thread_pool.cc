#include "kernels/base/thread_pool.h"

#include <chrono>

#include "kernels/base/check.h"

namespace tandem {

namespace {

thread_local bool inside_task = false;

// Longer than the gaps between the kernels of a step, and too short to matter on an idle machine.
constexpr std::chrono::microseconds kWatchTime{50};

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

struct ThreadPool::Loop {
  int64_t num_tasks;
  absl::FunctionRef<void(int64_t)> task;
  alignas(64) std::atomic<int64_t> next{0};
};

ThreadPool::ThreadPool(int num_threads)
    : num_threads_(num_threads),
      watches_(num_threads <= static_cast<int>(std::thread::hardware_concurrency())) {
  TANDEM_CHECK_GE(num_threads, 1);
  for (int i = 1; i < num_threads; ++i) threads_.emplace_back([this] { Work(); });
}

ThreadPool::~ThreadPool() {
  stopping_ = true;
  {
    absl::MutexLock lock(&mutex_);
    work_.SignalAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::RunTasks(Loop& loop) {
  inside_task = true;
  while (true) {
    const int64_t i = loop.next.fetch_add(1, std::memory_order_relaxed);
    if (i >= loop.num_tasks) break;
    loop.task(i);
  }
  inside_task = false;
}

bool ThreadPool::Watch(absl::FunctionRef<bool()> ready) const {
  if (ready()) return true;
  if (!watches_) return false;
  const auto end = std::chrono::steady_clock::now() + kWatchTime;
  do {
    for (int i = 0; i < 16; ++i) {
      if (ready()) return true;
      Pause();
    }
    std::this_thread::yield();
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

void ThreadPool::ParallelFor(int64_t num_tasks, absl::FunctionRef<void(int64_t)> task) {
  if (num_tasks <= 0) return;
  if (inside_task || num_threads_ == 1 || num_tasks == 1) {
    for (int64_t i = 0; i < num_tasks; ++i) task(i);
    return;
  }
  Loop loop{num_tasks, task};
  // Another caller uses the threads.
  if (busy_.exchange(true, std::memory_order_acquire)) return RunTasks(loop);
  loop_ = &loop;
  // Sequentially consistent with the counts of sleepers: either a sleeper sees the loop, or this
  // thread sees the sleeper.
  state_.store(((state_.load(std::memory_order_relaxed) / kOneLoop + 1) * kOneLoop) | kOpen);
  if (sleeping_workers_.load() > 0) {
    absl::MutexLock lock(&mutex_);
    work_.SignalAll();
  }
  RunTasks(loop);
  state_.fetch_and(~kOpen);
  const auto alone = [this] { return (state_.load() & kHelpers) == 0; };
  if (!Watch(alone)) {
    absl::MutexLock lock(&mutex_);
    caller_sleeps_ = true;
    while (!alone()) done_.Wait(&mutex_);
    caller_sleeps_ = false;
  }
  busy_.store(false, std::memory_order_release);
}

void ThreadPool::Help(uint64_t& seen) {
  uint64_t state = state_.load();
  while ((state & kOpen) != 0 && state / kOneLoop != seen) {
    if (!state_.compare_exchange_weak(state, state + 1)) continue;
    seen = state / kOneLoop;
    RunTasks(*loop_);
    const uint64_t left = state_.fetch_sub(1) - 1;
    if ((left & (kOpen | kHelpers)) == 0 && caller_sleeps_) {
      absl::MutexLock lock(&mutex_);
      done_.Signal();
    }
    return;
  }
}

void ThreadPool::Work() {
  uint64_t seen = 0;
  while (!stopping_) {
    const auto something = [this, &seen] {
      const uint64_t state = state_.load();
      return stopping_ || ((state & kOpen) != 0 && state / kOneLoop != seen);
    };
    if (!Watch(something)) {
      absl::MutexLock lock(&mutex_);
      ++sleeping_workers_;
      while (!something()) work_.Wait(&mutex_);
      --sleeping_workers_;
    }
    Help(seen);
  }
}

}  // namespace tandem
