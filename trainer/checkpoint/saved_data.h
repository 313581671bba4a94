// What data a checkpoint's run has read, and whether a job may go on, or be evaluated, on what it has. Manifests of the
// time before they said so are taken; the caller warns. Thread rule: free functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/checkpoint.pb.h"

namespace tandem::checkpoint {

// "1234 bytes, CRC32C 89abcdef".
std::string FingerprintText(const SavedFile& file);

// Whether `files`, in the order of CheckpointManifest::data, are what the run read, whatever their names. False also for a
// manifest that does not say.
bool IsSameData(const std::vector<SavedFile>& files, const CheckpointManifest& manifest);
// For a run that goes on: FailedPrecondition, naming both fingerprints, where the manifest says that the run read others.
absl::Status CheckSameData(const std::vector<SavedFile>& files, const CheckpointManifest& manifest);

// The largest id of the catalogue that a saved recommender ranks; 0 if the manifest does not say.
uint64_t CatalogueOf(const CheckpointManifest& manifest);
// FailedPrecondition where `job` wants another catalogue than the saved one.
absl::Status CheckSameCatalogue(const Job& job, const CheckpointManifest& manifest);

}  // namespace tandem::checkpoint
