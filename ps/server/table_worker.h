// A worker of a table host: a thread with a first-in-first-out mailbox, and tables that only the
// worker's tasks touch. The mailbox alone orders tasks: a push posted before a commit is part of
// the commit.
// Thread rule: Post from any thread; tables() from the worker's own tasks.
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
  // Runs the tasks in the mailbox, then ends.
  ~TableWorker();
  TableWorker(const TableWorker&) = delete;
  TableWorker& operator=(const TableWorker&) = delete;

  void Post(std::function<void()> task);

  int number() const { return number_; }
  // True if this worker has the rows of virtual shard `shard`.
  bool Owns(uint32_t shard) const {
    return shard % static_cast<uint32_t>(num_workers_) == static_cast<uint32_t>(number_);
  }
  TableMap& tables() { return tables_; }

 private:
  void Run();

  const int number_, num_workers_;
  TableMap tables_;
  absl::Mutex mutex_;
  std::deque<std::function<void()>> mailbox_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tandem::ps
