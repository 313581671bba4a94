#include "ps/server/table_worker.h"

#include <utility>

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
  while (true) {
    std::deque<std::function<void()>> tasks;
    {
      absl::MutexLock lock(&mutex_);
      const auto ready = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
        return stopping_ || !mailbox_.empty();
      };
      mutex_.Await(absl::Condition(&ready));
      if (mailbox_.empty()) return;
      tasks.swap(mailbox_);
    }
    while (!tasks.empty()) {
      tasks.front()();
      tasks.pop_front();  // frees the task at once: it may keep a receive buffer alive
    }
  }
}

}  // namespace tandem::ps
