// The data that a checkpoint's run has read, and whether a job may resume or be evaluated on the
// data it has. Old manifests do not name their data. They are accepted, and the caller warns.
// Thread rule: free functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem {
class CheckpointManifest;  // proto/checkpoint.pb.h
class Job;                 // proto/job.pb.h
class SavedFile;           // proto/embedding.pb.h
}  // namespace tandem

namespace tandem::checkpoint {

// "1234 bytes, CRC32C 89abcdef".
std::string FingerprintText(const SavedFile& file);

// True if `files`, in the order of CheckpointManifest::data, have the content that the run read,
// whatever their names. False also for a manifest that does not name its data.
bool IsSameData(const std::vector<SavedFile>& files, const CheckpointManifest& manifest);
// For a run that resumes. FailedPrecondition, naming both fingerprints, if the manifest says that
// the run read other data.
absl::Status CheckSameData(const std::vector<SavedFile>& files, const CheckpointManifest& manifest);

// The largest id of the catalogue that a saved recommender ranks; 0 if the manifest does not say.
uint64_t CatalogueOf(const CheckpointManifest& manifest);
// FailedPrecondition if `job` asks for another catalogue than the saved one.
absl::Status CheckSameCatalogue(const Job& job, const CheckpointManifest& manifest);

}  // namespace tandem::checkpoint
