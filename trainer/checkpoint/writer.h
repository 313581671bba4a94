// Writes a checkpoint; proto/checkpoint.proto lists its files. The checkpoint grows in a hidden
// draft folder. The folder gets its name, step-XXXXXXXX, once every byte is on disk (folder.h). So
// a run that dies leaves no half checkpoint, and the older checkpoint stays until the newer one is
// complete.
// Thread rule: the step's thread of rank 0, between steps.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/checkpoint.pb.h"
#include "ps/client/table_admin.h"
#include "trainer/optim/dense_state.h"

namespace tandem::checkpoint {

struct WriteArgs {
  std::string folder;                        // holds the checkpoints; made if missing
  CheckpointManifest manifest;               // without files
  const optim::DenseState* state = nullptr;  // with the entries of all parameters
  ps::TableAdmin* tables = nullptr;
  std::string item_ids = {};   // CheckpointManifest.items; empty: none
  std::string catalogue = {};  // CheckpointManifest.catalogue; empty: none
  int keep = 1;                // how many checkpoints stay, newest first; the best one also stays
  absl::Time deadline;
};

// ResourceExhausted names what could not be written. FailedPrecondition if manifest.step is not the
// last applied step. OutOfRange names the parameter or row that is not finite. After an error there
// is no new checkpoint, and the older ones stay.
absl::Status WriteCheckpoint(const WriteArgs& args);

}  // namespace tandem::checkpoint
