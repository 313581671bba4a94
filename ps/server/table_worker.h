// A worker of a table host: a first-in-first-out mailbox, and the tables that only its tasks touch, one task at a time. Order in the
// mailbox is the only order there is: a push posted before a commit is part of it. Tasks run on the worker's thread; a short one may run
// on the thread that posted it, if the worker has nothing else to do, and saves what waking a thread costs.
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
  TableWorker(int number, int num_workers) : number_(number), num_workers_(num_workers), thread_([this] { Run(); }) {}
  // Runs what is in the mailbox, waits for each RunPosted that is to follow, then ends.
  ~TableWorker();
  TableWorker(const TableWorker&) = delete;
  TableWorker& operator=(const TableWorker&) = delete;

  void Post(std::function<void()> task);
  // The same, but its thread is not woken: RunPosted must follow, and may wait until locks are gone that tasks take too.
  void PostQuietly(std::function<void()> task);
  void RunPosted();

  int number() const { return number_; }
  // Whether this worker has the rows of a virtual shard, among num_workers.
  bool Owns(uint32_t shard) const { return shard % static_cast<uint32_t>(num_workers_) == static_cast<uint32_t>(number_); }
  TableMap& tables() { return tables_; }

 private:
  using Mailbox = std::deque<std::function<void()>>;

  void Run();
  // Empties `tasks`, which the caller has taken from the mailbox with running_ set.
  void RunTasks(Mailbox tasks);

  const int number_, num_workers_;
  TableMap tables_;
  absl::Mutex mutex_;
  Mailbox mailbox_ ABSL_GUARDED_BY(mutex_);
  int num_quiet_ ABSL_GUARDED_BY(mutex_) = 0;     // PostQuietly without its RunPosted
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;    // its thread shall run what is there
  bool running_ ABSL_GUARDED_BY(mutex_) = false;  // tasks, on whatever thread
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tandem::ps
