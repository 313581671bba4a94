#include "trainer/checkpoint/writer.h"

#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/checked_file.h"
#include "kernels/base/status_macros.h"
#include "trainer/checkpoint/finite.h"
#include "trainer/checkpoint/folder.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/safetensors.h"

namespace tandem::checkpoint {
namespace {

namespace fs = std::filesystem;

// Lets the answer of the servers, which have the deadline, arrive.
constexpr absl::Duration kAnswer = absl::Seconds(1);
constexpr char kDenseFile[] = "dense.safetensors", kItemsFile[] = "items.txt",
               kCatalogueFile[] = "catalogue.tsv";

absl::StatusOr<SavedFile> WriteDense(const std::string& folder, const WriteArgs& args) {
  Safetensors content;
  content.metadata = {{"format", "tandem"}, {"step", absl::StrCat(args.manifest.step())}};
  const ParameterSet& parameters = *args.state->parameters;
  for (size_t i = 0; i < args.state->entries.size(); ++i) {
    const optim::DenseState::Entry& entry = args.state->entries[i];
    const std::string& name = parameters.all()[i]->name;
    content.tensors.push_back({name, parameters.ToHost(entry.value)});
    for (size_t s = 0; s < entry.slots.size(); ++s) {
      content.tensors.push_back(
          {absl::StrCat(name, "#", args.state->slot_names[s]), parameters.ToHost(entry.slots[s])});
    }
  }
  RETURN_IF_ERROR(parameters.status());
  for (const NamedTensor& named : content.tensors) {
    if (IsFinite(named.tensor)) continue;
    return absl::OutOfRangeError(
        absl::StrCat("parameter ", named.name, " is not finite (NaN or infinity)"));
  }
  ASSIGN_OR_RETURN(const FileDigest digest, WriteSafetensors(folder + "/" + kDenseFile, content));
  SavedFile file;
  file.set_name(kDenseFile);
  file.set_bytes(digest.num_bytes);
  file.set_crc32c(digest.crc32c);
  return file;
}

absl::StatusOr<SavedFile> WriteText(const std::string& folder, const char* name,
                                    const std::string& text) {
  FileWriter writer(folder + "/" + name);
  writer.Append(text.data(), text.size());
  ASSIGN_OR_RETURN(const FileDigest digest, writer.Finish());
  SavedFile file;
  file.set_name(name);
  file.set_bytes(digest.num_bytes);
  file.set_crc32c(digest.crc32c);
  return file;
}

absl::Status WriteFiles(const std::string& draft, const WriteArgs& args) {
  // Servers write at the same time.
  const auto saved = args.tables->Save(args.manifest.step(), draft, args.deadline);
  CheckpointManifest manifest = args.manifest;
  const absl::StatusOr<SavedFile> dense = WriteDense(draft, args);
  // Waits even after an error: servers must not write into a removed draft.
  const absl::StatusOr<std::vector<SavedFile>> rows = saved.Wait(args.deadline + kAnswer);
  RETURN_IF_ERROR(dense.status());
  RETURN_IF_ERROR(rows.status());
  *manifest.mutable_dense() = *dense;
  manifest.mutable_rows()->Add(rows->begin(), rows->end());
  if (!args.item_ids.empty()) {
    ASSIGN_OR_RETURN(*manifest.mutable_items(), WriteText(draft, kItemsFile, args.item_ids));
  }
  if (!args.catalogue.empty()) {
    ASSIGN_OR_RETURN(*manifest.mutable_catalogue(),
                     WriteText(draft, kCatalogueFile, args.catalogue));
  }
  RETURN_IF_ERROR(WriteManifest(draft, std::move(manifest)));
  return SyncFolder(draft);
}

}  // namespace

absl::Status WriteCheckpoint(const WriteArgs& args) {
  std::error_code error;
  const std::string folder = fs::absolute(args.folder, error).lexically_normal().string();
  if (error)
    return absl::ResourceExhaustedError(
        absl::StrCat("checkpoint ", args.folder, ": ", error.message()));
  ASSIGN_OR_RETURN(const std::string draft, BeginDraft(folder, args.manifest.step()));
  absl::Status status = WriteFiles(draft, args);
  if (status.ok()) status = Publish(draft);
  if (!status.ok()) {
    fs::remove_all(draft, error);
    return absl::Status(status.code(), absl::StrCat("checkpoint of step ", args.manifest.step(),
                                                    " in ", folder, ": ", status.message()));
  }
  RemoveOld(folder, args.manifest.step(), args.keep);
  return absl::OkStatus();
}

}  // namespace tandem::checkpoint
