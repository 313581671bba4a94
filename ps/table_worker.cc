#include "ps/table_worker.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/trace.h"
#include "ps/checkpoint.h"

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

absl::StatusOr<std::vector<SavedFile>> TableWorker::Save(const std::string& folder) const {
  std::vector<SavedFile> files;
  for (const auto& [number, table] : tables_) {
    ASSIGN_OR_RETURN(const std::optional<SavedFile> file, SaveRows(*table, folder));
    if (file.has_value()) files.push_back(*file);
  }
  return files;
}

absl::Status TableWorker::Load(const std::string& path, size_t num_workers) {
  const auto wrong = [&path](auto... text) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": ", text...));
  };
  Table* table = nullptr;
  return ReadRows(
      path,
      [&](const RowFileHeader& header) {
        const auto found = tables_.find(header.number);
        if (found == tables_.end()) return wrong("there is no table ", header.number, " (", header.table, ")");
        table = found->second.get();
        const TableSpec& spec = table->spec();
        if (header.table == spec.name() && header.dim == spec.dim() &&
            header.num_slots == static_cast<uint32_t>(table->layout().num_slots())) {
          return absl::OkStatus();
        }
        return wrong("has rows of table ", header.table, " with dim ", header.dim, " and ", header.num_slots,
                     " slots; the job's table ", spec.name(), " has dim ", spec.dim(), " and ",
                     table->layout().num_slots(), " slots");
      },
      [&](const SavedRow& row) {
        if (row.shard % num_workers != static_cast<size_t>(number_)) return absl::OkStatus();
        if (table->Restore(row.header, row.values)) return absl::OkStatus();
        return wrong("row ", row.header.id, " is in another file too");
      });
}

}  // namespace tandem::ps
