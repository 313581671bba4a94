// The folder of a run's checkpoints: step-XXXXXXXX for each, beside hidden entries that only the writer makes: a draft that
// grows, and for a moment the older checkpoint of a step that is written again (by a run that resumed from a stop before the step's
// evaluation and then found it the best). A process that is killed at any point leaves
// every checkpoint that was complete before, and nothing under its name that is not complete.
// Thread rule: free functions; one writer, any number of readers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/checkpoint.pb.h"

namespace tandem::checkpoint {

// Paths of the checkpoints in `folder`, oldest step first; none if it is no folder.
std::vector<std::string> ListCheckpoints(const std::string& folder);
// The path of the last one: where a run goes on. FailedPrecondition if there is none.
absl::StatusOr<std::string> NewestCheckpoint(const std::string& folder);
// The newest one that was the best when it was written (manifest.best_step is its step); the newest if none was: what is evaluated.
// FailedPrecondition if there is none, or names a manifest that cannot be read.
absl::StatusOr<std::string> BestCheckpoint(const std::string& folder);

// The step of a checkpoint's folder by the folder's name, without its path; nothing for another name.
std::optional<uint64_t> StepOfName(const std::string& name);

// A new, empty draft of a step's checkpoint. What dead writers left is removed first. `folder`, absolute, is made if missing.
absl::StatusOr<std::string> BeginDraft(const std::string& folder, uint64_t step);
// Gives a draft, whose files are all on disk, its name, in place of an older checkpoint of the same step.
absl::Status Publish(const std::string& draft);
// Removes all checkpoints but the newest `keep` and the best one, after that of `step` was written. One that cannot be read may be the
// best: it stays. Those of later steps go: the run went back behind them and now has another future.
void RemoveOld(const std::string& folder, uint64_t step, int keep);
// Removes the folder of another run's checkpoints, under another name first: what a crash leaves of it is not found again. Ok if
// there is none; InvalidArgument naming what cannot be removed.
absl::Status RemoveCheckpoints(const std::string& folder);
// Whether it was the best when it was written.
bool IsBest(const CheckpointManifest& manifest);

}  // namespace tandem::checkpoint
