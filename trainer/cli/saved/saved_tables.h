// A checkpoint for commands that only read: its job, and its tables in this process. An absent row
// has the run's first values.
// Thread rule: the main thread.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "ps/local/local_client.h"
#include "ps/server/table_host.h"
#include "trainer/autograd/variable.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/job/model_rules.h"

namespace tandem::cli {

// For commands that take the job from the manifest. FailedPrecondition unless that job keeps the
// limits of proto/job.proto.
absl::Status CheckSavedJob(const checkpoint::Checkpoint& saved, const job::Models& models);

class SavedTables {
 public:
  static absl::StatusOr<std::unique_ptr<SavedTables>> Load(const checkpoint::Checkpoint& saved,
                                                           int num_workers, absl::Duration timeout);
  ps::RowClient* rows() { return &client_; }

 private:
  explicit SavedTables(int num_workers)
      : host_(num_workers), client_(host_, /*trainer=*/0, /*num_trainers=*/1) {}

  ps::TableHost host_;
  ps::LocalClient client_;
};

}  // namespace tandem::cli
