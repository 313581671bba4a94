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
#include "trainer/checkpoint/safetensors_file.h"

namespace tandem::checkpoint {
namespace {

namespace fs = std::filesystem;

// Lets the answer of the servers, which have the deadline, arrive.
constexpr absl::Duration kAnswer = absl::Seconds(1);
constexpr char kDenseFile[] = "dense.safetensors", kItemsFile[] = "items.txt",
               kCatalogueFile[] = "catalogue.tsv";

std::string SlotName(const std::string& parameter, const std::string& slot) {
  return absl::StrCat(parameter, "#", slot);
}

// The file's tensors: every parameter with its slots.
SafetensorsHeader HeaderOf(const WriteArgs& args) {
  SafetensorsHeader header;
  header.metadata = {{"format", "tandem"}, {"step", absl::StrCat(args.manifest.step())}};
  const optim::DenseState& state = *args.state;
  const DType dtype = state.parameters->dtype();
  uint64_t place = 0;
  const auto add = [&](const std::string& name, const Shape& shape) {
    const uint64_t end = place + static_cast<uint64_t>(shape.num_elements()) * SizeOf(dtype);
    header.tensors.push_back({name, dtype, shape, place, end});
    place = end;
  };
  const std::vector<optim::LogicalParameter> parameters =
      args.parameters.empty() ? optim::LogicalParametersOf(*state.parameters) : args.parameters;
  for (const optim::LogicalParameter& parameter : parameters) {
    add(parameter.name, parameter.shape);
    for (const std::string& slot : state.slot_names)
      add(SlotName(parameter.name, slot), parameter.shape);
  }
  return header;
}

// Calls visit(name, parameter, first element, elements in the host's memory) for the values and
// slots of a state, up to the first error.
template <class Visit>
absl::Status ForEachArray(const optim::DenseState& state, const Visit& visit) {
  for (size_t i = 0; i < state.entries.size(); ++i) {
    const optim::DenseState::Entry& entry = state.entries[i];
    if (!entry.value.defined()) continue;
    const Parameter& parameter = *state.parameters->all()[i];
    const auto to_host = [&](const Tensor& tensor) { return state.parameters->ToHost(tensor); };
    RETURN_IF_ERROR(visit(parameter.name, parameter, entry.begin, to_host(entry.value)));
    for (size_t s = 0; s < entry.slots.size(); ++s) {
      RETURN_IF_ERROR(visit(SlotName(parameter.name, state.slot_names[s]), parameter, entry.begin,
                            to_host(entry.slots[s])));
    }
  }
  return state.parameters->status();
}

absl::StatusOr<SavedFile> WriteDense(const std::string& folder, const WriteArgs& args) {
  ASSIGN_OR_RETURN(const std::string wrong, FirstNonFinite(*args.state));
  if (!wrong.empty()) {
    return absl::OutOfRangeError(
        absl::StrCat("parameter ", wrong, " is not finite (NaN or infinity)"));
  }
  const std::string path = folder + "/" + kDenseFile;
  RETURN_IF_ERROR(SafetensorsFile::Create(path, HeaderOf(args)));
  RETURN_IF_ERROR(WriteEntries(path, *args.state));
  if (args.await_others) RETURN_IF_ERROR(args.await_others(path));
  ASSIGN_OR_RETURN(const FileDigest digest, DigestOf(path));
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

absl::StatusOr<std::string> FirstNonFinite(const optim::DenseState& state) {
  std::string found;
  RETURN_IF_ERROR(ForEachArray(
      state, [&](const std::string& name, const Parameter&, int64_t, const Tensor& elements) {
        if (found.empty() && !IsFinite(elements)) found = name;
        return absl::OkStatus();
      }));
  return found;
}

absl::Status WriteEntries(const std::string& dense, const optim::DenseState& state) {
  ASSIGN_OR_RETURN(const auto file, SafetensorsFile::Open(dense, SafetensorsFile::Access::WRITE));
  RETURN_IF_ERROR(ForEachArray(state, [&](const std::string& name, const Parameter& parameter,
                                          int64_t begin, const Tensor& elements) {
    const TensorEntry* const entry = file->Find(name);
    TANDEM_CHECK(entry != nullptr) << name;
    const char* const from = static_cast<const char*>(elements.raw());
    absl::Status status;
    parameter.slice.ForEachRun(
        begin, begin + elements.num_elements(), [&](int64_t local, int64_t logical, int64_t count) {
          if (!status.ok()) return;
          const size_t offset = static_cast<size_t>(local - begin) * SizeOf(elements.dtype());
          status = file->Write(*entry, logical, count, from + offset);
        });
    return status;
  }));
  return file->Sync();
}

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
