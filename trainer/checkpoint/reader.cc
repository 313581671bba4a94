#include "trainer/checkpoint/reader.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
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
#include "trainer/checkpoint/safetensors_file.h"

namespace tandem::checkpoint {
namespace {

namespace fs = std::filesystem;

absl::Status Checked(const std::string& folder, const SavedFile& file) {
  const absl::Status status = CheckFile(folder + "/" + file.name(), {file.bytes(), file.crc32c()});
  if (status.ok()) return status;
  return absl::FailedPreconditionError(
      absl::StrCat("checkpoint ", folder, ": ", status.message(), "; take another checkpoint"));
}

std::string ShapeText(DType dtype, const Shape& shape) {
  std::ostringstream text;
  text << NameOf(dtype) << " " << shape;
  return text.str();
}

// Returns "m" for "layer.weight#m", and "" for a parameter.
std::string SlotOf(const std::string& name) {
  const size_t mark = name.find('#');
  return mark == std::string::npos ? "" : name.substr(mark + 1);
}

// An array of the checkpoint, and the elements of it that this rank takes.
struct Target {
  std::string name;
  const Parameter* parameter;
  int64_t begin;  // of the rank's array of the parameter
  Tensor to;      // undefined: takes nothing
};

template <class... Text>
absl::Status Wrong(const Checkpoint& checkpoint, const Text&... text) {
  return absl::FailedPreconditionError(
      absl::StrCat("checkpoint ", checkpoint.DensePath(), ": ", text...));
}

absl::StatusOr<std::unique_ptr<SafetensorsFile>> OpenDense(const Checkpoint& checkpoint) {
  auto file = SafetensorsFile::Open(checkpoint.DensePath(), SafetensorsFile::Access::READ);
  if (file.ok()) return file;
  return absl::FailedPreconditionError(absl::StrCat("checkpoint ", file.status().message()));
}

// Returns Ok if file and job have the same tensors by name, type and logical shape. The file may
// also have those of `names`. Slots of the file count only with `slots`.
absl::Status CheckSame(const Checkpoint& checkpoint, const SafetensorsFile& file,
                       const std::vector<Target>& targets, std::set<std::string> names,
                       bool slots) {
  for (const Target& target : targets) {
    names.insert(target.name);
    const TensorEntry* const found = file.Find(target.name);
    if (found == nullptr)
      return Wrong(checkpoint, "has no parameter ", target.name, ", which the job's model has");
    const Shape& shape = target.parameter->slice.logical();
    const DType dtype = target.parameter->variable.dtype();
    if (found->shape != shape || found->dtype != dtype) {
      return Wrong(checkpoint, "parameter ", target.name, " is ",
                   ShapeText(found->dtype, found->shape), ", in the job's model ",
                   ShapeText(dtype, shape));
    }
  }
  for (const TensorEntry& entry : file.header().tensors) {
    if (names.count(entry.name) == 0 && (slots || SlotOf(entry.name).empty()))
      return Wrong(checkpoint, "has a parameter ", entry.name, ", which the job's model has not");
  }
  return absl::OkStatus();
}

// Reads the elements that a target takes, in the order of the rank's array.
absl::StatusOr<Tensor> ReadTarget(const SafetensorsFile& file, const Target& target) {
  const TensorEntry& entry = *file.Find(target.name);
  const Tensor elements = Tensor::Empty(target.to.shape(), entry.dtype);
  absl::Status status;
  target.parameter->slice.ForEachRun(
      target.begin, target.begin + elements.num_elements(),
      [&](int64_t local, int64_t logical, int64_t count) {
        if (!status.ok()) return;
        const size_t offset = static_cast<size_t>(local - target.begin) * SizeOf(entry.dtype);
        status = file.Read(entry, logical, count, static_cast<char*>(elements.raw()) + offset);
      });
  RETURN_IF_ERROR(status);
  return elements;
}

// Fills the targets. Reads twice, because an error must not leave half of them changed, and to keep
// both states would take the memory of two.
absl::Status FillTargets(const Checkpoint& checkpoint, const SafetensorsFile& file,
                         const std::vector<Target>& targets, const ParameterSet& parameters) {
  for (const bool assign : {false, true}) {
    for (const Target& target : targets) {
      if (!target.to.defined()) continue;
      const absl::StatusOr<Tensor> elements = ReadTarget(file, target);
      if (!elements.ok())
        return absl::FailedPreconditionError(
            absl::StrCat("checkpoint ", elements.status().message()));
      if (assign) {
        parameters.Assign(target.to, *elements);
      } else if (!IsFinite(*elements)) {
        return Wrong(checkpoint, "parameter ", target.name,
                     " is not finite (NaN or infinity); take another checkpoint");
      }
    }
  }
  return parameters.status();
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
  ASSIGN_OR_RETURN(const auto file, OpenDense(checkpoint));
  std::vector<Target> targets;
  for (const auto& parameter : parameters.all())
    targets.push_back({parameter->name, parameter.get(), 0, parameter->variable.value()});
  RETURN_IF_ERROR(CheckSame(checkpoint, *file, targets, /*names=*/{}, /*slots=*/false));
  return FillTargets(checkpoint, *file, targets, parameters);
}

absl::Status LoadState(const Checkpoint& checkpoint, const optim::DenseState& state,
                       const std::vector<optim::LogicalParameter>& whole) {
  ASSIGN_OR_RETURN(const auto file, OpenDense(checkpoint));
  const std::vector<std::string>& slots = state.slot_names;
  std::set<std::string> saved_slots;
  for (const TensorEntry& entry : file->header().tensors) saved_slots.insert(SlotOf(entry.name));
  saved_slots.erase("");
  if (saved_slots != std::set<std::string>(slots.begin(), slots.end())) {
    return Wrong(checkpoint, "has the optimizer slots {", absl::StrJoin(saved_slots, ", "), "} of ",
                 OptimizerKind_Name(checkpoint.manifest.job().optimizer().kind()),
                 ", the job's optimizer has {", absl::StrJoin(slots, ", "),
                 "}; resume with optimizer.kind as it was");
  }
  std::vector<Target> targets;
  for (size_t i = 0; i < state.entries.size(); ++i) {
    const Parameter& parameter = *state.parameters->all()[i];
    const optim::DenseState::Entry& entry = state.entries[i];
    // A rank that updates a part of the parameter may still hold all of the value.
    const Tensor& held = parameter.variable.leaf().held_value();
    const bool whole =
        entry.value.defined() && entry.value.num_elements() == parameter.num_elements();
    const bool fills_held = !whole && held.defined();
    targets.push_back({parameter.name, &parameter, fills_held ? 0 : entry.begin,
                       fills_held ? held : entry.value});
    for (size_t s = 0; s < slots.size(); ++s) {
      targets.push_back({absl::StrCat(parameter.name, "#", slots[s]), &parameter, entry.begin,
                         entry.slots.empty() ? Tensor() : entry.slots[s]});
    }
  }
  std::set<std::string> elsewhere;
  for (const optim::LogicalParameter& parameter : whole) {
    elsewhere.insert(parameter.name);
    for (const std::string& slot : slots) elsewhere.insert(absl::StrCat(parameter.name, "#", slot));
  }
  RETURN_IF_ERROR(CheckSame(checkpoint, *file, targets, std::move(elsewhere), /*slots=*/true));
  return FillTargets(checkpoint, *file, targets, *state.parameters);
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
