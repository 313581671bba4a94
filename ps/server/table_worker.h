// A worker of a table host: a first-in-first-out mailbox, and tables that only the worker's tasks
// touch. One task runs at a time. The mailbox alone orders tasks: a push posted before a commit is
// part of the commit. Tasks run on the worker's thread. If the worker is idle, a short task may run
// on the posting thread, which saves the cost of waking a thread.
// Thread rule: Post and RunPosted from any thread; tables() from the worker's own tasks.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "ps/store/table.h"

namespace tandem::ps {

using TableMap = std::map<uint32_t, std::unique_ptr<Table>>;  // by number

class TableWorker {
 public:
  TableWorker(int number, int num_workers)
      : number_(number), num_workers_(num_workers), thread_([this] { Run(); }) {}
  // Runs the tasks in the mailbox, waits for each RunPosted that is still due, then ends.
  ~TableWorker();
  TableWorker(const TableWorker&) = delete;
  TableWorker& operator=(const TableWorker&) = delete;

  void Post(std::function<void()> task);
  // Posts without waking the worker's thread. RunPosted must follow, possibly after releasing locks
  // that tasks take too.
  void PostQuietly(std::function<void()> task);
  void RunPosted();

  int number() const { return number_; }
  // True if this worker has the rows of virtual shard `shard`.
  bool Owns(uint32_t shard) const {
    return shard % static_cast<uint32_t>(num_workers_) == static_cast<uint32_t>(number_);
  }
  TableMap& tables() { return tables_; }

 private:
  using Mailbox = std::deque<std::function<void()>>;

  void Run();
  // Runs all `tasks`.
  // REQUIRES: the caller took `tasks` from the mailbox and set running_.
  void RunTasks(Mailbox tasks);

  const int number_, num_workers_;
  TableMap tables_;
  absl::Mutex mutex_;
  Mailbox mailbox_ ABSL_GUARDED_BY(mutex_);
  int num_quiet_ ABSL_GUARDED_BY(mutex_) = 0;     // PostQuietly calls without their RunPosted yet
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;    // the thread must run the mailbox
  bool running_ ABSL_GUARDED_BY(mutex_) = false;  // tasks run, on any thread
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tandem::ps
