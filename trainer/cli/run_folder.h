// The --out folder at the start of a run: for a new run, or for one that resumes.
// Thread rule: the main thread.
#pragma once

#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/cli/run_options.h"
#include "trainer/job/model_rules.h"
#include "trainer/report/run_output.h"
#include "trainer/tasks/job_data.h"

namespace tandem {
class Job;  // proto/job.pb.h
}

namespace tandem::cli {

// InvalidArgument unless the whole path of --out is UTF-8, because it travels to the servers, which
// write their rows there.
absl::Status CheckOutPath(const RunOptions& options);

// True if `out` holds a completed run and --resume=auto was given: nothing is left to do.
bool IsFinished(const RunOptions& options);

// InvalidArgument if `out` holds a run and the options do not say what to do with it. A summary or
// a checkpoint shows that a folder holds a run. The error names the choices. Also InvalidArgument
// if the options about an older run contradict each other. Changes nothing.
// REQUIRES: the caller holds the lock of the folder.
absl::Status CheckOlderRun(const RunOptions& options);

// Returns the checkpoint that --resume asks for, checked to the last byte and against the job and
// its data. Returns nothing for a new run. FailedPrecondition if there is no checkpoint or it does
// not fit. Changes nothing.
absl::StatusOr<std::optional<checkpoint::Checkpoint>> CheckpointToResume(const RunOptions& options,
                                                                         const Job& job,
                                                                         const tasks::JobData& data,
                                                                         const job::Models& models);

// For rank 0: makes the folder if missing. `resumed` is null for a new run.
absl::StatusOr<std::unique_ptr<report::RunOutput>> OpenRunOutput(
    const RunOptions& options, const tasks::JobData& data, const checkpoint::Checkpoint* resumed);

}  // namespace tandem::cli
