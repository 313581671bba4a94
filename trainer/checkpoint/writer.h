// Writes a checkpoint; proto/checkpoint.proto lists its files. The checkpoint grows in a hidden
// draft folder. The folder gets its name, step-XXXXXXXX, once every byte is on disk (folder.h). So
// a run that dies leaves no half checkpoint, and the older checkpoint stays until the newer one is
// complete.
// Rank 0 writes a checkpoint. Other ranks write the dense elements that they own into its file.
// Thread rule: the step's thread, between steps.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/checkpoint.pb.h"
#include "ps/client/table_admin.h"
#include "trainer/optim/dense_state.h"

namespace tandem::checkpoint {

struct WriteArgs {
  std::string folder;                        // holds the checkpoints; made if missing
  CheckpointManifest manifest;               // without files
  const optim::DenseState* state = nullptr;  // what this rank writes of the dense parameters
  // All dense parameters, of which `state` may have some; empty: `state` has all.
  std::vector<optim::LogicalParameter> parameters = {};
  ps::TableAdmin* tables = nullptr;
  std::string item_ids = {};   // CheckpointManifest.items; empty: none
  std::string catalogue = {};  // CheckpointManifest.catalogue; empty: none
  int keep = 1;                // how many checkpoints stay, newest first; the best one also stays
  absl::Time deadline;
  // Called when other ranks may write their entries (WriteEntries) into the file `dense`. Returns
  // when they have. Null: `state` has all entries.
  std::function<absl::Status(const std::string& dense)> await_others = nullptr;
};

// Writes the entries of `state` into the file `dense` of a checkpoint that is being written. Ranks
// that own parts of the dense parameters call it, each for its own entries. ResourceExhausted names
// the file.
absl::Status WriteEntries(const std::string& dense, const optim::DenseState& state);
// Names a value or slot of `state` that has a NaN or an infinity, "" if all are finite. Returns the
// error of the device that has them.
absl::StatusOr<std::string> FirstNonFinite(const optim::DenseState& state);

// ResourceExhausted names what could not be written. FailedPrecondition if manifest.step is not the
// last applied step. OutOfRange names the parameter or row that is not finite. After an error there
// is no new checkpoint, and the older ones stay.
absl::Status WriteCheckpoint(const WriteArgs& args);

}  // namespace tandem::checkpoint
