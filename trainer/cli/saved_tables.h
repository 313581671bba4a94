// The tables of a checkpoint in this process, for commands that only read: also an absent row's first values are the run's.
// Thread rule: the main thread.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "ps/client_local.h"
#include "ps/table_host.h"
#include "trainer/autograd/variable.h"
#include "trainer/checkpoint/reader.h"

namespace tandem::cli {

class SavedTables {
 public:
  static absl::StatusOr<std::unique_ptr<SavedTables>> Load(const checkpoint::Checkpoint& saved, int num_workers,
                                                           absl::Duration timeout);
  ps::Client* client() { return &client_; }

 private:
  explicit SavedTables(int num_workers) : host_(num_workers), client_(host_, /*trainer=*/0, /*num_trainers=*/1) {}

  ps::TableHost host_;
  ps::LocalClient client_;
};

}  // namespace tandem::cli
