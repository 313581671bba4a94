#include "kernels/base/thread_pool.h"

#include "kernels/base/check.h"

namespace tandem {

namespace {
thread_local bool inside_task = false;
}  // namespace

struct ThreadPool::Loop {
  int64_t num_tasks;
  absl::FunctionRef<void(int64_t)> task;
  std::atomic<int64_t> next{0};
  int helpers = 0;  // threads inside RunTasks, the caller not counted; guarded by the pool's mutex
};

ThreadPool::ThreadPool(int num_threads) : num_threads_(num_threads) {
  TANDEM_CHECK_GE(num_threads, 1);
  for (int i = 1; i < num_threads; ++i) threads_.emplace_back([this] { Work(); });
}

ThreadPool::~ThreadPool() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
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

void ThreadPool::ParallelFor(int64_t num_tasks, absl::FunctionRef<void(int64_t)> task) {
  if (num_tasks <= 0) return;
  if (inside_task || num_threads_ == 1 || num_tasks == 1) {
    for (int64_t i = 0; i < num_tasks; ++i) task(i);
    return;
  }
  Loop loop{num_tasks, task};
  {
    absl::MutexLock lock(&mutex_);
    if (loop_ != nullptr) {  // another caller has the threads: do it alone
      mutex_.Unlock();
      RunTasks(loop);
      mutex_.Lock();
      return;
    }
    loop_ = &loop;
    ++generation_;
  }
  RunTasks(loop);
  absl::MutexLock lock(&mutex_);
  loop_ = nullptr;
  mutex_.Await(absl::Condition(+[](Loop* loop) { return loop->helpers == 0; }, &loop));
}

void ThreadPool::Work() {
  uint64_t seen = 0;
  absl::MutexLock lock(&mutex_);
  while (true) {
    auto ready = [this, &seen]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return stopping_ || (loop_ != nullptr && generation_ != seen);
    };
    mutex_.Await(absl::Condition(&ready));
    if (stopping_) return;
    seen = generation_;
    Loop& loop = *loop_;
    ++loop.helpers;
    mutex_.Unlock();
    RunTasks(loop);
    mutex_.Lock();
    --loop.helpers;
  }
}

}  // namespace tandem
