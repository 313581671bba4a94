#include "trainer/cli/run_folder.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "trainer/checkpoint/folder.h"
#include "trainer/checkpoint/manifest.h"

namespace tandem::cli {

absl::StatusOr<std::optional<checkpoint::Checkpoint>> CheckpointToResume(const RunOptions& options, const Job& job,
                                                                         const loop::JobData& data) {
  if (!options.resume) return std::nullopt;
  const std::string folder = options.out + "/checkpoints";
  if (checkpoint::ListCheckpoints(folder).empty()) {
    return absl::FailedPreconditionError(absl::StrCat("nothing to resume: no checkpoint in ", folder, "; start without --resume"));
  }
  ASSIGN_OR_RETURN(checkpoint::Checkpoint saved, checkpoint::OpenCheckpoint(folder, checkpoint::Choice::NEWEST));
  RETURN_IF_ERROR(checkpoint::CheckSameRun(job, saved.manifest));
  RETURN_IF_ERROR(checkpoint::CheckSameVocabulary(job, data.Symbols(), saved.manifest));
  return saved;
}

absl::StatusOr<std::unique_ptr<loop::RunOutput>> OpenRunOutput(const RunOptions& options, const checkpoint::Checkpoint* resumed) {
  ASSIGN_OR_RETURN(auto output, loop::RunOutput::Create(options.out, options.log_format));
  if (resumed != nullptr) {
    output->Note(absl::StrCat("resumed after step ", static_cast<int64_t>(resumed->manifest.step()), " from ", resumed->folder));
  }
  return output;
}

}  // namespace tandem::cli
