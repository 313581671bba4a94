// Opens checkpoints and puts back what they hold. Files are taken for hostile until the manifest's sizes and checksums say that
// they are what was written. Everything wrong is FailedPrecondition, naming the file and what to do.
// Thread rule: free functions; values.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/checkpoint.pb.h"
#include "ps/client/client.h"
#include "trainer/autograd/parameter.h"
#include "trainer/optim/dense_state.h"

namespace tandem::checkpoint {

struct Checkpoint {
  std::string folder;
  CheckpointManifest manifest;

  std::string DensePath() const { return folder + "/" + manifest.dense().name(); }
};

// Which one of a folder of checkpoints: the last, where a run goes on, or the best, for evaluation (folder.h).
enum class Choice { NEWEST, BEST };

// `path` is a checkpoint or a folder of some. Every file has been checked.
absl::StatusOr<Checkpoint> OpenCheckpoint(const std::string& path, Choice choice);

// The ids of the items that the run mapped, one a line; empty if it mapped none.
absl::StatusOr<std::string> ReadItemIds(const Checkpoint& checkpoint);

// Overwrites the values of all parameters. Each must be there with its name, type, shape and finite numbers; all else but optimizer
// slots is an error, and then nothing has changed. Shadows of values are the caller's to refresh.
absl::Status LoadParameters(const Checkpoint& checkpoint, ParameterSet& parameters);
// The same with the optimizer's slots, which must be those of its kind, into the entries of `state`, which has those of all parameters.
absl::Status LoadState(const Checkpoint& checkpoint, const optim::DenseState& state);
// Puts the rows back into tables that `client` has created (ps::Client::Load) and makes the checkpoint's step the last one applied.
absl::Status LoadRows(const Checkpoint& checkpoint, ps::Client& client, absl::Time deadline);

}  // namespace tandem::checkpoint
