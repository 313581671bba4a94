// Finds and opens checkpoints. Files are taken for hostile until the manifest's sizes and checksums say that they are what
// was written. Everything wrong is FailedPrecondition, naming the file and what to do.
// Thread rule: free functions; values.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/checkpoint.pb.h"
#include "trainer/optim/dense_optimizer.h"

namespace tandem::checkpoint {

// Paths of the step-XXXXXXXX folders in `folder`, oldest step first.
std::vector<std::string> ListCheckpoints(const std::string& folder);

struct Checkpoint {
  std::string folder;  // absolute
  CheckpointManifest manifest;

  // Names of the files that ps::Client::Load reads, in `folder`.
  std::vector<std::string> RowFiles() const;
};

enum class Which { NEWEST, BEST };
// `path` is a checkpoint or a folder of checkpoints, of which `which` is taken. Every file has been checked.
absl::StatusOr<Checkpoint> OpenCheckpoint(const std::string& path, Which which = Which::BEST);
// Like LoadParameters, with the optimizer's slots.
absl::Status LoadState(const Checkpoint& checkpoint, ParameterSet& parameters, optim::DenseOptimizer& optimizer);
// Overwrites the values of all parameters. Each must be there with its name, type and shape; all else but optimizer slots is an
// error, and then nothing has changed.
absl::Status LoadParameters(const Checkpoint& checkpoint, ParameterSet& parameters);

}  // namespace tandem::checkpoint
