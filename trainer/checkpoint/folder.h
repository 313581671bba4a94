// The folder of a run's checkpoints: step-XXXXXXXX for each. Beside them are hidden entries that
// only the writer makes: a growing draft, and briefly the older checkpoint of a step that is
// written again. Example: a run resumes from a stop before the step's evaluation, which then finds
// the step the best. A process killed at any point leaves every checkpoint that was complete
// before. No name of a checkpoint ever shows an incomplete one.
// Thread rule: free functions; one writer, any number of readers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem {
class CheckpointManifest;  // proto/checkpoint.pb.h
}  // namespace tandem

namespace tandem::checkpoint {

// The paths of the checkpoints in `folder`, oldest step first. Empty if `folder` is not a folder.
std::vector<std::string> ListCheckpoints(const std::string& folder);
// The path of the checkpoint of the last step, from which a run resumes. FailedPrecondition if
// there is none.
absl::StatusOr<std::string> NewestCheckpoint(const std::string& folder);
// The path of the checkpoint to evaluate: the newest that was the best when it was written
// (manifest.best_step is its step), or the newest if none was. FailedPrecondition if there is none,
// or naming a manifest that cannot be read.
absl::StatusOr<std::string> BestCheckpoint(const std::string& folder);

// The step in the name of a checkpoint's folder (without its path); nothing for another name.
std::optional<uint64_t> StepOfName(const std::string& name);

// Makes a new, empty draft of a step's checkpoint. First removes the drafts that dead writers left.
// Makes `folder`, an absolute path, if missing.
absl::StatusOr<std::string> BeginDraft(const std::string& folder, uint64_t step);
// Renames a draft to its final name, in place of an older checkpoint of the same step.
// REQUIRES: all files of the draft are on disk.
absl::Status Publish(const std::string& draft);
// Call after the checkpoint of `step` was written. Removes all checkpoints but the newest `keep`
// and the best one. Keeps a checkpoint that cannot be read, because it may be the best. Removes
// those of later steps, because the run went back and now has another future.
void RemoveOld(const std::string& folder, uint64_t step, int keep);
// Removes the folder of another run's checkpoints. Renames it first, so that the rest after a crash
// is not found again. Ok if there is none; InvalidArgument naming what cannot be removed.
absl::Status RemoveCheckpoints(const std::string& folder);
// True if the checkpoint was the best when it was written.
bool IsBest(const CheckpointManifest& manifest);

}  // namespace tandem::checkpoint
