#include "ps/table_worker.h"

#include <utility>

#include "kernels/base/trace.h"

namespace tandem::ps {

TableWorker::~TableWorker() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
}

void TableWorker::Post(std::function<void()> task) {
  absl::MutexLock lock(&mutex_);
  mailbox_.push_back(std::move(task));
}

void TableWorker::Run() {
  NameThisThread(absl::StrCat("rows ", number_));
  while (true) {
    std::deque<std::function<void()>> tasks;
    {
      absl::MutexLock lock(&mutex_);
      auto ready = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stopping_ || !mailbox_.empty(); };
      mutex_.Await(absl::Condition(&ready));
      if (mailbox_.empty()) return;
      tasks.swap(mailbox_);
    }
    while (!tasks.empty()) {
      tasks.front()();
      tasks.pop_front();  // at once: a task may keep a receive buffer alive
    }
  }
}

}  // namespace tandem::ps
