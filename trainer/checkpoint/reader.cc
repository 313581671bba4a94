#include "trainer/checkpoint/reader.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/checked_file.h"
#include "kernels/base/status_macros.h"
#include "trainer/checkpoint/finite.h"
#include "trainer/checkpoint/folder.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/safetensors.h"

namespace tandem::checkpoint {
namespace {

namespace fs = std::filesystem;

absl::Status Checked(const std::string& folder, const SavedFile& file) {
  const absl::Status status = CheckFile(folder + "/" + file.name(), {file.bytes(), file.crc32c()});
  if (status.ok()) return status;
  return absl::FailedPreconditionError(
      absl::StrCat("checkpoint ", folder, ": ", status.message(), "; take another checkpoint"));
}

std::string ShapeText(const Tensor& tensor) {
  std::ostringstream text;
  text << NameOf(tensor.dtype()) << " " << tensor.shape();
  return text.str();
}

// Returns "m" for "layer.weight#m", and "" for a parameter.
std::string SlotOf(const std::string& name) {
  const size_t mark = name.find('#');
  return mark == std::string::npos ? "" : name.substr(mark + 1);
}

using TensorMap = std::map<std::string, Tensor>;

TensorMap ParametersByName(const ParameterSet& parameters) {
  TensorMap tensors;
  for (const auto& parameter : parameters.all())
    tensors[parameter->name] = parameter->variable.value();
  return tensors;
}

absl::StatusOr<TensorMap> ReadDense(const Checkpoint& checkpoint) {
  auto content = ReadSafetensors(checkpoint.DensePath());
  if (!content.ok())
    return absl::FailedPreconditionError(absl::StrCat("checkpoint ", content.status().message()));
  TensorMap saved;
  for (NamedTensor& named : content->tensors) saved[named.name] = std::move(named.tensor);
  return saved;
}

template <class... Text>
absl::Status Wrong(const Checkpoint& checkpoint, const Text&... text) {
  return absl::FailedPreconditionError(
      absl::StrCat("checkpoint ", checkpoint.DensePath(), ": ", text...));
}

// Returns Ok if both have the same tensors by name, type and shape.
absl::Status CheckSame(const Checkpoint& checkpoint, const TensorMap& saved,
                       const TensorMap& targets) {
  for (const auto& [name, target] : targets) {
    const auto found = saved.find(name);
    if (found == saved.end())
      return Wrong(checkpoint, "has no parameter ", name, ", which the job's model has");
    if (found->second.shape() != target.shape() || found->second.dtype() != target.dtype()) {
      return Wrong(checkpoint, "parameter ", name, " is ", ShapeText(found->second),
                   ", in the job's model ", ShapeText(target));
    }
  }
  for (const auto& [name, tensor] : saved) {
    if (targets.count(name) == 0)
      return Wrong(checkpoint, "has a parameter ", name, ", which the job's model has not");
  }
  return absl::OkStatus();
}

// Returns Ok if no number is a NaN or an infinity. REQUIRES: CheckSame.
absl::Status CheckFinite(const Checkpoint& checkpoint, const TensorMap& saved) {
  for (const auto& [name, tensor] : saved) {
    if (!IsFinite(tensor))
      return Wrong(checkpoint, "parameter ", name,
                   " is not finite (NaN or infinity); take another checkpoint");
  }
  return absl::OkStatus();
}

void Fill(const TensorMap& saved, const TensorMap& targets, const ParameterSet& parameters) {
  for (const auto& [name, target] : targets) parameters.Assign(target, saved.at(name));
}

}  // namespace

absl::StatusOr<Checkpoint> OpenCheckpoint(const std::string& path, Choice choice) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    return absl::FailedPreconditionError(
        absl::StrCat("checkpoint ", path,
                     ": no such folder; give a run's OUT/checkpoints or one of its step-XXXXXXXX"));
  }
  Checkpoint checkpoint{path, {}};
  if (!ListCheckpoints(path).empty()) {
    ASSIGN_OR_RETURN(checkpoint.folder,
                     choice == Choice::BEST ? BestCheckpoint(path) : NewestCheckpoint(path));
  }
  ASSIGN_OR_RETURN(checkpoint.manifest, ReadManifest(checkpoint.folder));
  RETURN_IF_ERROR(Checked(checkpoint.folder, checkpoint.manifest.dense()));
  if (checkpoint.manifest.has_items())
    RETURN_IF_ERROR(Checked(checkpoint.folder, checkpoint.manifest.items()));
  if (checkpoint.manifest.has_catalogue())
    RETURN_IF_ERROR(Checked(checkpoint.folder, checkpoint.manifest.catalogue()));
  for (const SavedFile& file : checkpoint.manifest.rows())
    RETURN_IF_ERROR(Checked(checkpoint.folder, file));
  return checkpoint;
}

absl::StatusOr<SavedItems> ReadItems(const Checkpoint& checkpoint) {
  const CheckpointManifest& manifest = checkpoint.manifest;
  SavedItems items;
  for (const auto& [file, text] : {std::pair(&manifest.items(), &items.ids),
                                   std::pair(&manifest.catalogue(), &items.catalogue)}) {
    if (file->name().empty()) continue;
    std::ifstream stream(checkpoint.folder + "/" + file->name(), std::ios::binary);
    text->assign(std::istreambuf_iterator<char>(stream), {});
    if (text->size() == file->bytes()) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("checkpoint ", checkpoint.folder, ": ", file->name(), " cannot be read"));
  }
  return items;
}

absl::Status LoadParameters(const Checkpoint& checkpoint, ParameterSet& parameters) {
  ASSIGN_OR_RETURN(TensorMap saved, ReadDense(checkpoint));
  std::erase_if(saved, [](const auto& named) { return !SlotOf(named.first).empty(); });
  const TensorMap targets = ParametersByName(parameters);
  RETURN_IF_ERROR(CheckSame(checkpoint, saved, targets));
  RETURN_IF_ERROR(CheckFinite(checkpoint, saved));
  Fill(saved, targets, parameters);
  return parameters.status();
}

absl::Status LoadState(const Checkpoint& checkpoint, const optim::DenseState& state) {
  ASSIGN_OR_RETURN(const TensorMap saved, ReadDense(checkpoint));
  const std::vector<std::string>& slots = state.slot_names;
  std::set<std::string> saved_slots;
  for (const auto& [name, tensor] : saved) saved_slots.insert(SlotOf(name));
  saved_slots.erase("");
  if (saved_slots != std::set<std::string>(slots.begin(), slots.end())) {
    return Wrong(checkpoint, "has the optimizer slots {", absl::StrJoin(saved_slots, ", "), "} of ",
                 OptimizerKind_Name(checkpoint.manifest.job().optimizer().kind()),
                 ", the job's optimizer has {", absl::StrJoin(slots, ", "),
                 "}; resume with optimizer.kind as it was");
  }
  const ParameterSet& parameters = *state.parameters;
  TensorMap targets;
  for (size_t i = 0; i < state.entries.size(); ++i) {
    const std::string& name = parameters.all()[i]->name;
    targets[name] = state.entries[i].value;
    for (size_t s = 0; s < slots.size(); ++s)
      targets[absl::StrCat(name, "#", slots[s])] = state.entries[i].slots[s];
  }
  RETURN_IF_ERROR(CheckSame(checkpoint, saved, targets));
  RETURN_IF_ERROR(CheckFinite(checkpoint, saved));
  Fill(saved, targets, parameters);
  return parameters.status();
}

absl::Status LoadRows(const Checkpoint& checkpoint, ps::TableAdmin& tables, absl::Time deadline) {
  std::error_code error;
  const fs::path folder = fs::absolute(checkpoint.folder, error);
  if (error)
    return absl::FailedPreconditionError(
        absl::StrCat("checkpoint ", checkpoint.folder, ": ", error.message()));
  std::vector<std::string> files;
  for (const SavedFile& file : checkpoint.manifest.rows()) files.push_back(file.name());
  // The calls have the deadline. The extra second lets their answer arrive.
  const auto loaded =
      tables.Load(checkpoint.manifest.step(), folder.lexically_normal().string(), files, deadline)
          .Wait(deadline + absl::Seconds(1));
  if (loaded.ok()) return absl::OkStatus();
  return absl::Status(loaded.status().code(), absl::StrCat("checkpoint ", checkpoint.folder, ": ",
                                                           loaded.status().message()));
}

}  // namespace tandem::checkpoint
