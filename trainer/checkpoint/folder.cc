#include "trainer/checkpoint/folder.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "kernels/base/checked_file.h"
#include "kernels/base/status_macros.h"
#include "proto/checkpoint.pb.h"
#include "trainer/checkpoint/manifest.h"

namespace tandem::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr char kStep[] = "step-";
constexpr char kDraft[] = ".draft-step-";
// Counts as a checkpoint until its step has another.
constexpr char kReplaced[] = ".replaced-step-";
constexpr char kRemoved[] = ".removed";

absl::Status FileError(const std::string& path, const std::error_code& error) {
  return absl::ResourceExhaustedError(
      absl::StrCat("cannot write checkpoint ", path, ": ", error.message()));
}

// Reads the step of an entry named PREFIX and 8 to 18 digits. Returns false for any other name.
bool TakeStep(const std::string& name, absl::string_view prefix, uint64_t* step) {
  absl::string_view digits = name;
  if (!absl::ConsumePrefix(&digits, prefix) || digits.size() < 8 || digits.size() > 18)
    return false;
  if (digits.find_first_not_of("0123456789") != absl::string_view::npos) return false;
  *step = std::stoull(std::string(digits));
  return true;
}

// Renames first, because a half removed checkpoint must not look like a checkpoint.
void Remove(const fs::path& path) {
  std::error_code ignored;  // the next checkpoint tries again
  const fs::path removed = path.parent_path() / kRemoved;
  fs::remove_all(removed, ignored);
  fs::rename(path, removed, ignored);
  fs::remove_all(removed, ignored);
}

void RemoveLeftovers(const std::string& folder) {
  std::error_code ignored;
  std::vector<fs::path> leftovers;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    uint64_t step;
    const bool replaced =
        TakeStep(name, kReplaced, &step) &&
        fs::exists(absl::StrCat(folder, "/", kStep, name.substr(sizeof kReplaced - 1)), ignored);
    if (name == kRemoved || TakeStep(name, kDraft, &step) || replaced)
      leftovers.push_back(entry.path());
  }
  for (const fs::path& path : leftovers) Remove(path);
}

}  // namespace

bool IsBest(const CheckpointManifest& manifest) {
  return manifest.best_step() != 0 && manifest.best_step() == manifest.step();
}

std::optional<uint64_t> StepOfName(const std::string& name) {
  uint64_t step;
  if (TakeStep(name, kStep, &step) || TakeStep(name, kReplaced, &step)) return step;
  return std::nullopt;
}

std::vector<std::string> ListCheckpoints(const std::string& folder) {
  std::map<uint64_t, std::string> steps, replaced;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    uint64_t step;
    if (TakeStep(name, kStep, &step)) steps[step] = entry.path().string();
    if (TakeStep(name, kReplaced, &step)) replaced[step] = entry.path().string();
  }
  steps.merge(replaced);
  std::vector<std::string> paths;
  for (auto& [step, path] : steps) paths.push_back(std::move(path));
  return paths;
}

absl::StatusOr<std::string> NewestCheckpoint(const std::string& folder) {
  const std::vector<std::string> paths = ListCheckpoints(folder);
  if (!paths.empty()) return paths.back();
  return absl::FailedPreconditionError(
      absl::StrCat("checkpoint ", folder, ": there is none; give a run's OUT/checkpoints"));
}

absl::StatusOr<std::string> BestCheckpoint(const std::string& folder) {
  const std::vector<std::string> paths = ListCheckpoints(folder);
  for (auto path = paths.rbegin(); path != paths.rend(); ++path) {
    ASSIGN_OR_RETURN(const CheckpointManifest manifest, ReadManifest(*path));
    if (IsBest(manifest)) return *path;
  }
  return NewestCheckpoint(folder);
}

absl::StatusOr<std::string> BeginDraft(const std::string& folder, uint64_t step) {
  std::error_code error;
  const bool is_new = fs::create_directories(folder, error);
  if (error) return FileError(folder, error);
  if (is_new) RETURN_IF_ERROR(SyncFolder(fs::path(folder).parent_path().string()));
  RemoveLeftovers(folder);
  const std::string draft = absl::StrFormat("%s/%s%08d", folder, kDraft, step);
  fs::create_directory(draft, error);
  if (error) return FileError(draft, error);
  return draft;
}

absl::Status Publish(const std::string& draft) {
  const fs::path folder = fs::path(draft).parent_path();
  const std::string digits = fs::path(draft).filename().string().substr(sizeof kDraft - 1);
  const fs::path target = folder / (kStep + digits), replaced = folder / (kReplaced + digits);
  std::error_code error;
  // Two renames, not one exchange, which network file systems lack. Between the renames, readers
  // find the older checkpoint by its hidden name.
  if (fs::exists(target, error)) fs::rename(target, replaced, error);
  if (!error) fs::rename(draft, target, error);
  if (error) return FileError(target.string(), error);
  RETURN_IF_ERROR(SyncFolder(folder.string()));
  Remove(replaced);
  return absl::OkStatus();
}

absl::Status RemoveCheckpoints(const std::string& folder) {
  const std::string aside = absl::StrCat(folder, kRemoved);
  std::error_code error;
  fs::remove_all(aside, error);
  if (!error) fs::rename(folder, aside, error);
  if (error == std::errc::no_such_file_or_directory) return absl::OkStatus();
  if (!error) fs::remove_all(aside, error);
  if (!error) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("cannot remove the older checkpoints in ", folder,
                                                 ": ", error.message(),
                                                 "; remove them or give another --out"));
}

void RemoveOld(const std::string& folder, uint64_t step, int keep) {
  std::vector<std::string> paths = ListCheckpoints(folder);
  while (!paths.empty() && StepOfName(fs::path(paths.back()).filename().string()) > step) {
    Remove(paths.back());
    paths.pop_back();
  }
  bool best_found = false;
  int newer = 0;
  for (auto path = paths.rbegin(); path != paths.rend(); ++path, ++newer) {
    if (!best_found) {
      const auto manifest = ReadManifest(*path);
      best_found = manifest.ok() && IsBest(*manifest);
      if (best_found || !manifest.ok()) continue;
    }
    if (newer >= std::max(1, keep)) Remove(*path);
  }
}

}  // namespace tandem::checkpoint
