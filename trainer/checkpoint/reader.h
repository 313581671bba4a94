// Opens checkpoints and restores their contents. Files count as hostile until their sizes and
// checksums match the manifest. Every error is FailedPrecondition, naming the file and what to do.
// Thread rule: free functions; values.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/checkpoint.pb.h"
#include "ps/client/table_admin.h"
#include "trainer/autograd/parameter.h"
#include "trainer/optim/dense_state.h"

namespace tandem::checkpoint {

struct Checkpoint {
  std::string folder;
  CheckpointManifest manifest;

  std::string DensePath() const { return folder + "/" + manifest.dense().name(); }
};

// Which checkpoint of a folder: the last, to resume a run, or the best, for evaluation (folder.h).
enum class Choice { NEWEST, BEST };

// `path` is a checkpoint or a folder of checkpoints. Checks every file.
absl::StatusOr<Checkpoint> OpenCheckpoint(const std::string& path, Choice choice);

// The texts of CheckpointManifest.items and .catalogue; empty if the run had none.
struct SavedItems {
  std::string ids, catalogue;
};
absl::StatusOr<SavedItems> ReadItems(const Checkpoint& checkpoint);

// Overwrites the values of all parameters. Each must be in the checkpoint with its name, type,
// shape and finite numbers. Any other tensor but optimizer slots is an error. On error nothing has
// changed. The caller refreshes the shadows of values.
absl::Status LoadParameters(const Checkpoint& checkpoint, ParameterSet& parameters);
// The same with the optimizer's slots, which must be those of its kind. Fills the values of all
// parameters, and the slots of the entries of `state`. `whole` are all dense parameters, of which
// `state` may have some; empty: `state` has all.
absl::Status LoadState(const Checkpoint& checkpoint, const optim::DenseState& state,
                       const std::vector<optim::LogicalParameter>& whole = {});
// Puts the rows back into tables that `tables` has created (ps::TableAdmin::Load) and makes the
// checkpoint's step the last one applied.
absl::Status LoadRows(const Checkpoint& checkpoint, ps::TableAdmin& tables, absl::Time deadline);

}  // namespace tandem::checkpoint
