// Writes a checkpoint, proto/checkpoint.proto says of what files. It grows in a hidden draft folder and gets its name,
// step-XXXXXXXX, when every byte is on disk (folder.h): a run that dies leaves no half checkpoint, and the older one stays
// until the newer is there.
// Thread rule: the step's thread of rank 0, between steps.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/checkpoint.pb.h"
#include "ps/client/client.h"
#include "trainer/optim/dense_state.h"

namespace tandem::checkpoint {

struct WriteArgs {
  std::string folder;           // holds the checkpoints; made if missing
  CheckpointManifest manifest;  // without files
  const optim::DenseState* state = nullptr;  // with the entries of all parameters
  ps::Client* client = nullptr;
  std::string item_ids = {};  // of mapped items, one a line; empty: none
  int keep = 1;  // how many checkpoints stay, newest first; the best one stays besides
  absl::Time deadline;
};

// ResourceExhausted names what could not be written; FailedPrecondition if manifest.step is not the last one applied; OutOfRange names
// the parameter or row that is not finite. After an error there is no new checkpoint, and the older ones stay.
absl::Status WriteCheckpoint(const WriteArgs& args);

}  // namespace tandem::checkpoint
