#include "trainer/cli/run_folder.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"
#include "trainer/checkpoint/folder.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/saved_data.h"
#include "trainer/report/run_json.h"

namespace tandem::cli {

namespace {

namespace fs = std::filesystem;

std::string CheckpointsOf(const RunOptions& options) { return options.out + "/checkpoints"; }

bool HasCompleted(const RunOptions& options) {
  return report::StatusOfRun(options.out) == report::kCompleted;
}

bool HoldsRun(const RunOptions& options) {
  std::error_code ignored;
  return fs::exists(options.out + "/summary.json", ignored) ||
         !checkpoint::ListCheckpoints(CheckpointsOf(options)).empty();
}

// True if --resume names a checkpoint that does not belong to the run in `out`.
bool IsOfAnotherRun(const std::string& checkpoint, const RunOptions& options) {
  std::error_code ignored;
  const fs::path folder = fs::weakly_canonical(checkpoint, ignored),
                 own = fs::weakly_canonical(CheckpointsOf(options), ignored);
  return folder != own && folder.parent_path() != own;
}

bool NamesCheckpoint(const RunOptions& options) {
  return !options.resume.empty() && options.resume != kResumeNewest &&
         options.resume != kResumeAuto;
}

// The newest complete checkpoint of a folder, if there is one.
std::optional<std::string> NewestWhole(const std::string& folder) {
  const std::vector<std::string> paths = checkpoint::ListCheckpoints(folder);
  for (auto path = paths.rbegin(); path != paths.rend(); ++path) {
    if (checkpoint::OpenCheckpoint(*path, checkpoint::Choice::NEWEST).ok()) return *path;
  }
  return std::nullopt;
}

absl::StatusOr<checkpoint::Checkpoint> OpenNewest(const std::string& folder) {
  auto newest = checkpoint::OpenCheckpoint(folder, checkpoint::Choice::NEWEST);
  if (newest.ok()) return newest;
  const std::optional<std::string> whole = NewestWhole(folder);
  if (!whole) return newest;
  return absl::Status(
      newest.status().code(),
      absl::StrCat(newest.status().message(), "; the newest whole one: --resume=", *whole));
}

// Checks that items numbered by data.ids MAP have the numbers of the checkpoint's rows. New items
// have later numbers.
absl::Status CheckItemNumbers(const checkpoint::Checkpoint& saved, const Job& job,
                              const tasks::JobData& data) {
  ASSIGN_OR_RETURN(const checkpoint::SavedItems items, checkpoint::ReadItems(saved));
  if (absl::StartsWith(data.ItemIds(), items.ids)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "checkpoint ", saved.folder, ": its items have other numbers than those of ",
      Printable(job.data().path()),
      ", where they first come in another order; add to the log at its end, or start anew"));
}

// A note for the user about the data of a run that resumes; empty: none.
std::string DataNote(const tasks::JobData& data, const CheckpointManifest& manifest) {
  if (manifest.data().empty())
    return "the checkpoint does not say which data it was trained on: the job's is taken for the "
           "same";
  return checkpoint::IsSameData(data.Files(), manifest)
             ? ""
             : "the data has changed since the checkpoint, as --data-changed says";
}

}  // namespace

absl::Status CheckOutPath(const RunOptions& options) {
  std::error_code error;
  const std::string folder = fs::absolute(options.out, error).string();
  if (!error && IsUtf8(folder)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--out ", Printable(options.out), ": ",
                   error ? error.message() : absl::StrCat(Printable(folder), " is not UTF-8"),
                   "; give another folder"));
}

bool IsFinished(const RunOptions& options) {
  return options.resume == kResumeAuto && HasCompleted(options);
}

absl::Status CheckOlderRun(const RunOptions& options) {
  if (options.overwrite && !options.resume.empty()) {
    return absl::InvalidArgumentError(
        "--resume goes on with the run in --out and --overwrite replaces it: give one of them");
  }
  if (options.data_changed && options.resume.empty()) {
    return absl::InvalidArgumentError(
        "--data-changed goes with --resume: a run that begins has no checkpoint of other data");
  }
  if (options.overwrite || !HoldsRun(options)) return absl::OkStatus();
  if (NamesCheckpoint(options) && IsOfAnotherRun(options.resume, options)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--out ", options.out, " holds a run, and --resume=", options.resume,
                     " is a checkpoint of another: give an --out without a run"));
  }
  if (!options.resume.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--out ", options.out, " holds a run that ",
                   HasCompleted(options) ? "has completed" : "was broken off",
                   ": --resume goes on with it, --resume=auto does so if there is anything to go "
                   "on with, --overwrite replaces it; or give another --out"));
}

absl::StatusOr<std::optional<checkpoint::Checkpoint>> CheckpointToResume(
    const RunOptions& options, const Job& job, const tasks::JobData& data,
    const job::Models& models) {
  if (options.resume.empty()) return std::nullopt;
  const std::string folder = NamesCheckpoint(options) ? options.resume : CheckpointsOf(options);
  if (!NamesCheckpoint(options) && checkpoint::ListCheckpoints(folder).empty()) {
    if (options.resume == kResumeAuto) return std::nullopt;
    return absl::FailedPreconditionError(
        absl::StrCat("nothing to resume: no checkpoint in ", folder,
                     "; --resume=auto or --overwrite begins anew"));
  }
  ASSIGN_OR_RETURN(checkpoint::Checkpoint saved, OpenNewest(folder));
  RETURN_IF_ERROR(checkpoint::CheckSameRun(job, saved.manifest, models));
  RETURN_IF_ERROR(checkpoint::CheckSameVocabulary(job, data.Symbols(), saved.manifest));
  if (!options.data_changed)
    RETURN_IF_ERROR(checkpoint::CheckSameData(data.Files(), saved.manifest));
  RETURN_IF_ERROR(CheckItemNumbers(saved, job, data));
  return saved;
}

absl::StatusOr<std::unique_ptr<report::RunOutput>> OpenRunOutput(
    const RunOptions& options, const tasks::JobData& data, const checkpoint::Checkpoint* resumed) {
  ASSIGN_OR_RETURN(auto output, report::RunOutput::Create(options.out, options.log_format));
  if (resumed != nullptr) {
    const uint64_t step = resumed->manifest.step();
    if (const std::string note = DataNote(data, resumed->manifest); !note.empty())
      output->Note(note);
    output->Note(absl::StrCat("resumed after step ", step, " from ", resumed->folder));
    const std::vector<std::string> paths = checkpoint::ListCheckpoints(CheckpointsOf(options));
    if (!paths.empty() &&
        checkpoint::StepOfName(fs::path(paths.back()).filename().string()) > step) {
      output->Note("checkpoints of later steps go when this run writes its first");
    }
  }
  return output;
}

}  // namespace tandem::cli
