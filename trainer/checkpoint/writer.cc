#include "trainer/checkpoint/writer.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/checked_file.h"
#include "kernels/base/status_macros.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/checkpoint/safetensors.h"

namespace tandem::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr char kDraftPrefix[] = ".draft-";
constexpr char kDenseFile[] = "dense.safetensors";

absl::Status FileError(const std::string& path, const std::error_code& error) {
  return absl::ResourceExhaustedError(absl::StrCat("cannot write checkpoint ", path, ": ", error.message()));
}

absl::StatusOr<SavedFile> WriteDense(const std::string& folder, const WriteArgs& args) {
  Safetensors content;
  content.metadata = {{"format", "tandem"}, {"step", absl::StrCat(args.manifest.step())}};
  const std::vector<std::string> slot_names = args.optimizer->slot_names();
  const auto& parameters = args.parameters->all();
  for (size_t i = 0; i < parameters.size(); ++i) {
    content.tensors.push_back({parameters[i]->name, parameters[i]->variable.value()});
    for (size_t s = 0; s < slot_names.size(); ++s) {
      content.tensors.push_back({absl::StrCat(parameters[i]->name, "#", slot_names[s]), args.optimizer->slots(i)[s]});
    }
  }
  ASSIGN_OR_RETURN(const FileDigest digest, WriteSafetensors(folder + "/" + kDenseFile, content));
  SavedFile file;
  file.set_name(kDenseFile);
  file.set_bytes(digest.num_bytes);
  file.set_crc32c(digest.crc32c);
  return file;
}

absl::Status WriteFiles(const std::string& draft, const WriteArgs& args) {
  const auto saved = args.client->Save(args.manifest.step(), draft);  // servers write while we do
  CheckpointManifest manifest = args.manifest;
  ASSIGN_OR_RETURN(*manifest.mutable_dense(), WriteDense(draft, args));
  ASSIGN_OR_RETURN(const std::vector<SavedFile> rows, saved.Wait(args.deadline));
  manifest.mutable_rows()->Add(rows.begin(), rows.end());
  RETURN_IF_ERROR(WriteManifest(draft, std::move(manifest)));
  return SyncFolder(draft);
}

// What does not stay: drafts of a run that died, and all but the newest `keep` checkpoints.
void RemoveOld(const std::string& folder, int keep) {
  std::error_code ignored;  // the next checkpoint tries again
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.path().filename().string().rfind(kDraftPrefix, 0) == 0) fs::remove_all(entry.path(), ignored);
  }
  std::vector<std::string> steps = ListCheckpoints(folder);
  for (size_t i = 0; i + static_cast<size_t>(std::max(1, keep)) < steps.size(); ++i) fs::remove_all(steps[i], ignored);
}

}  // namespace

absl::Status WriteCheckpoint(const WriteArgs& args) {
  std::error_code error;
  const std::string folder = fs::absolute(args.folder, error).lexically_normal().string();
  const std::string name = absl::StrFormat("step-%08d", args.manifest.step());
  const std::string draft = folder + "/" + kDraftPrefix + name, target = folder + "/" + name;
  if (!error) fs::remove_all(draft, error);
  if (!error) fs::create_directories(draft, error);
  if (error) return FileError(draft, error);
  if (absl::Status status = WriteFiles(draft, args); !status.ok()) {
    fs::remove_all(draft, error);
    return absl::Status(status.code(), absl::StrCat("checkpoint ", target, ": ", status.message()));
  }
  fs::remove_all(target, error);
  if (!error) fs::rename(draft, target, error);
  if (error) return FileError(target, error);
  RETURN_IF_ERROR(SyncFolder(folder));
  RemoveOld(folder, args.keep);
  return absl::OkStatus();
}

}  // namespace tandem::checkpoint
