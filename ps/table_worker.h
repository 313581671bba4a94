// A worker thread of a table host: a first-in-first-out mailbox, and the tables that only this thread touches. Order in the
// mailbox is the only order there is: a push posted before a commit is part of it.
// Thread rule: Post from any thread; tables() from the worker's own tasks.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "ps/table.h"

namespace tandem::ps {

using TableMap = std::map<uint32_t, std::unique_ptr<Table>>;  // by number

class TableWorker {
 public:
  TableWorker(int number, int num_workers) : number_(number), num_workers_(num_workers), thread_([this] { Run(); }) {}
  // Runs what is in the mailbox, then ends.
  ~TableWorker();
  TableWorker(const TableWorker&) = delete;
  TableWorker& operator=(const TableWorker&) = delete;

  void Post(std::function<void()> task);

  int number() const { return number_; }
  // Whether this worker has the rows of a virtual shard, among num_workers.
  bool Owns(uint32_t shard) const { return shard % static_cast<uint32_t>(num_workers_) == static_cast<uint32_t>(number_); }
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
