#include "trainer/checkpoint/reader.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "kernels/base/checked_file.h"
#include "kernels/base/status_macros.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/safetensors.h"

namespace tandem::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr char kStepPrefix[] = "step-";

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

}  // namespace

std::vector<std::string> ListCheckpoints(const std::string& folder) {
  std::vector<std::pair<uint64_t, std::string>> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    const std::string digits = name.rfind(kStepPrefix, 0) == 0 ? name.substr(sizeof kStepPrefix - 1) : "";
    if (digits.size() < 8 || digits.size() > 18 || digits.find_first_not_of("0123456789") != std::string::npos) continue;
    found.emplace_back(std::stoull(digits), entry.path().string());
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> paths;
  for (auto& [step, path] : found) paths.push_back(std::move(path));
  return paths;
}

std::vector<std::string> Checkpoint::RowFiles() const {
  std::vector<std::string> names;
  for (const SavedFile& file : manifest.rows()) names.push_back(file.name());
  return names;
}

absl::StatusOr<Checkpoint> OpenCheckpoint(const std::string& path, Which) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    return absl::FailedPreconditionError(
        absl::StrCat("checkpoint ", path, ": no such folder; give a run's OUT/checkpoints or one of its step-XXXXXXXX"));
  }
  const std::vector<std::string> steps = ListCheckpoints(path);
  Checkpoint checkpoint{fs::absolute(steps.empty() ? path : steps.back(), ignored).lexically_normal().string(), {}};
  ASSIGN_OR_RETURN(checkpoint.manifest, ReadManifest(checkpoint.folder));
  RETURN_IF_ERROR(Checked(checkpoint.folder, checkpoint.manifest.dense()));
  for (const SavedFile& file : checkpoint.manifest.rows()) RETURN_IF_ERROR(Checked(checkpoint.folder, file));
  return checkpoint;
}

absl::Status LoadParameters(const Checkpoint& checkpoint, ParameterSet& parameters) {
  const std::string path = checkpoint.folder + "/" + checkpoint.manifest.dense().name();
  const auto wrong = [&path](auto... text) {
    return absl::FailedPreconditionError(absl::StrCat("checkpoint ", path, ": ", text...));
  };
  auto content = ReadSafetensors(path);
  if (!content.ok()) return absl::FailedPreconditionError(absl::StrCat("checkpoint ", content.status().message()));
  std::map<std::string, Tensor> saved;
  for (NamedTensor& named : content->tensors) {
    if (named.name.find('#') == std::string::npos) saved[named.name] = std::move(named.tensor);
  }
  for (const auto& parameter : parameters.all()) {
    const Tensor& value = parameter->variable.value();
    const auto found = saved.find(parameter->name);
    if (found == saved.end()) return wrong("has no parameter ", parameter->name, ", which the job's model has");
    if (found->second.shape() != value.shape() || found->second.dtype() != value.dtype()) {
      return wrong("parameter ", parameter->name, " is ", ShapeText(found->second), ", in the job's model ", ShapeText(value));
    }
  }
  if (saved.size() != parameters.all().size()) {
    return wrong("has ", saved.size(), " parameters, the job's model ", parameters.all().size());
  }
  for (const auto& parameter : parameters.all()) {
    const Tensor& value = parameter->variable.value();
    std::memcpy(value.raw(), saved.at(parameter->name).raw(), value.num_bytes());
  }
  return absl::OkStatus();
}

absl::Status LoadState(const Checkpoint& checkpoint, ParameterSet& parameters, optim::DenseOptimizer& optimizer) {
  RETURN_IF_ERROR(LoadParameters(checkpoint, parameters));
  auto content = ReadSafetensors(checkpoint.folder + "/" + checkpoint.manifest.dense().name());
  std::map<std::string, Tensor> saved;
  for (NamedTensor& named : content->tensors) saved[named.name] = std::move(named.tensor);
  for (size_t i = 0; i < parameters.all().size(); ++i) {
    for (size_t s = 0; s < optimizer.slots(i).size(); ++s) {
      const Tensor& slot = optimizer.slots(i)[s];
      std::memcpy(slot.raw(), saved.at(parameters.all()[i]->name + "#" + optimizer.slot_names()[s]).raw(), slot.num_bytes());
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem::checkpoint
