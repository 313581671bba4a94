// A worker thread of a table host: a first-in-first-out mailbox, and the tables that only this thread touches. Order in the
// mailbox is the only order there is: a push posted before a commit is part of it.
// Thread rule: Post from any thread; tables(), Save and Load from the worker's own tasks.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "ps/client.h"
#include "ps/table.h"

namespace tandem::ps {

class TableWorker {
 public:
  explicit TableWorker(int number) : number_(number), thread_([this] { Run(); }) {}
  // Runs what is in the mailbox, then ends.
  ~TableWorker();
  TableWorker(const TableWorker&) = delete;
  TableWorker& operator=(const TableWorker&) = delete;

  void Post(std::function<void()> task);

  int number() const { return number_; }
  std::map<uint32_t, std::unique_ptr<Table>>& tables() { return tables_; }
  absl::StatusOr<std::vector<SavedFile>> Save(const std::string& folder) const;
  // The rows of the file that belong to this one of `num_workers` workers.
  absl::Status Load(const std::string& path, size_t num_workers);

 private:
  void Run();

  const int number_;
  std::map<uint32_t, std::unique_ptr<Table>> tables_;
  absl::Mutex mutex_;
  std::deque<std::function<void()>> mailbox_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tandem::ps
