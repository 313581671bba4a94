// The manifest of a checkpoint (proto/checkpoint.proto). It is written last and makes a folder of
// files a checkpoint. It holds the size and checksum of every other file. Its last line is a
// checksum of its other lines.
// Thread rule: free functions.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/job/model_rules.h"

namespace tandem {
class CheckpointManifest;  // proto/checkpoint.pb.h
class Job;                 // proto/job.pb.h
}  // namespace tandem

namespace tandem::checkpoint {

inline constexpr uint32_t kFormatVersion = 1;

// Sets the format version and writes the manifest. ResourceExhausted names the file.
absl::Status WriteManifest(const std::string& folder, CheckpointManifest manifest);
// Reads the manifest. FailedPrecondition, naming the file, unless all of this holds:
// - the manifest is complete and has our format version;
// - it lies in the folder of its step;
// - its counts are counts that a run can have;
// - it names all files of its folder and no others.
absl::StatusOr<CheckpointManifest> ReadManifest(const std::string& folder);

// FailedPrecondition if the saved model cannot be the model that `job` describes. Names the
// differing fields of the model, the tables and their placement, with both values. Fields that only
// training reads (dropout, loss, optimizers, first values) may differ.
// REQUIRES: `models` knows the job's kind.
absl::Status CheckSameModel(const Job& job, const CheckpointManifest& manifest,
                            const job::Models& models);
// FailedPrecondition unless `symbols` equals the saved model's vocabulary. `symbols` is the
// vocabulary of `job`'s text, "" if there is none. Another vocabulary of equal size has the shape
// but not the meaning.
absl::Status CheckSameVocabulary(const Job& job, const std::string& symbols,
                                 const CheckpointManifest& manifest);
// For a run that resumes: like CheckSameModel, but also FailedPrecondition if one of these differs:
// - seed, the whole model, tables' optimizers and first values;
// - data format and split, batch size, selection;
// - the optimizer's kind, betas or epsilon.
// These may differ: learning rates, schedules, decay, clipping, lengths, evaluation, logging,
// checkpoints, paths, layout, accumulation, precision and machines.
absl::Status CheckSameRun(const Job& job, const CheckpointManifest& manifest,
                          const job::Models& models);

}  // namespace tandem::checkpoint
