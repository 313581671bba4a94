// The manifest of a checkpoint (proto/checkpoint.proto): what makes a folder of files a checkpoint. It is written last and
// says of every other file what its bytes must be; its own last line is a checksum of the rest.
// Thread rule: free functions.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/checkpoint.pb.h"

namespace tandem::checkpoint {

inline constexpr uint32_t kFormatVersion = 1;

// Sets the format version. ResourceExhausted names the file.
absl::Status WriteManifest(const std::string& folder, CheckpointManifest manifest);
// FailedPrecondition, naming the file, unless it is whole, of our format version, in the folder of its step, with counts that a run can
// have, and names all files of its folder and no others.
absl::StatusOr<CheckpointManifest> ReadManifest(const std::string& folder);

// FailedPrecondition names the fields of the model, the tables and their placement in which a saved model cannot be what `job`
// describes, with both values. What only training reads (dropout, loss, optimizers, first values) may differ.
absl::Status CheckSameModel(const Job& job, const CheckpointManifest& manifest);
// FailedPrecondition unless `symbols`, of the vocabulary of `job`'s text ("" where there is none), are those of the saved model:
// equally many others have its shape but not its meaning.
absl::Status CheckSameVocabulary(const Job& job, const std::string& symbols, const CheckpointManifest& manifest);
// For a run that goes on: FailedPrecondition also where seed, the whole model, tables' optimizers and first values, data format
// and split, batch size, selection, or the optimizer's kind, betas or epsilon differ. Learning rates, schedules, decay, clipping,
// lengths, evaluation, logging, checkpoints, paths, layout, accumulation, precision and machines may.
absl::Status CheckSameRun(const Job& job, const CheckpointManifest& manifest);

}  // namespace tandem::checkpoint
