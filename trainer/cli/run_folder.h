// The --out folder of a run that begins: fresh, or of a run that goes on. Thread rule: the main thread.
#pragma once

#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/cli/run_options.h"
#include "trainer/tasks/job_data.h"
#include "trainer/report/run_output.h"

namespace tandem::cli {

// InvalidArgument where the whole path of --out is not UTF-8: it travels to the servers, which write their rows there.
absl::Status CheckOutPath(const RunOptions& options);

// Whether `out` holds a run that has completed and --resume=auto was given: nothing is left to do.
bool IsFinished(const RunOptions& options);

// InvalidArgument if `out` holds a run, known by its summary or a checkpoint, and the options do not say what becomes of it; names the
// ways on. Likewise if what the options say of an older run does not go together. For whoever writes into the folder, who has its lock.
// Changes nothing.
absl::Status CheckOlderRun(const RunOptions& options);

// The checkpoint that --resume asks for, checked to the last byte and against the job and its data; nothing for a run that begins.
// FailedPrecondition if there is none or it does not fit. Changes nothing.
absl::StatusOr<std::optional<checkpoint::Checkpoint>> CheckpointToResume(const RunOptions& options, const Job& job,
                                                                         const tasks::JobData& data);

// Makes the folder if it is missing, for rank 0. `resumed` is null for a run that begins.
absl::StatusOr<std::unique_ptr<report::RunOutput>> OpenRunOutput(const RunOptions& options, const tasks::JobData& data,
                                                               const checkpoint::Checkpoint* resumed);

}  // namespace tandem::cli
