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
  woken_ = true;
}

void TableWorker::PostQuietly(std::function<void()> task) {
  absl::MutexLock lock(&mutex_);
  mailbox_.push_back(std::move(task));
  ++num_quiet_;
}

void TableWorker::RunPosted() {
  Mailbox task;
  {
    absl::MutexLock lock(&mutex_);
    --num_quiet_;
    if (running_ || woken_ || mailbox_.size() > 1) {  // other tasks come first, and may be long
      woken_ = !mailbox_.empty();
      return;
    }
    if (mailbox_.empty()) return;
    running_ = true;
    task.swap(mailbox_);
  }
  RunTasks(std::move(task));
}

void TableWorker::RunTasks(Mailbox tasks) {
  while (!tasks.empty()) {
    tasks.front()();
    tasks.pop_front();  // frees the task at once: it may keep a receive buffer alive
  }
  absl::MutexLock lock(&mutex_);
  running_ = false;
}

void TableWorker::Run() {
  while (true) {
    Mailbox tasks;
    {
      absl::MutexLock lock(&mutex_);
      auto ready = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
        return !running_ && (woken_ || (stopping_ && num_quiet_ == 0));
      };
      mutex_.Await(absl::Condition(&ready));
      if (mailbox_.empty()) return;  // a woken worker has tasks, so this is the end
      running_ = true;
      woken_ = false;
      tasks.swap(mailbox_);
    }
    RunTasks(std::move(tasks));
  }
}

}  // namespace tandem::ps
