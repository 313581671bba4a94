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
// FailedPrecondition, naming the file, unless it is whole, of our format version and names files in its own folder only.
absl::StatusOr<CheckpointManifest> ReadManifest(const std::string& folder);

// FailedPrecondition names the fields of the model and the tables in which a saved model cannot be what `job` describes.
// What only training reads (dropout, loss, optimizers, first values) may differ.
absl::Status CheckSameModel(const Job& job, const CheckpointManifest& manifest);

inline absl::Status CheckSameRun(const Job& job, const CheckpointManifest& manifest) { return CheckSameModel(job, manifest); }

}  // namespace tandem::checkpoint
