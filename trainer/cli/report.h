// The end of a run for its reader: its figures beside what no learning reaches and, for a generated log, what nobody can
// exceed. Thread rule: main thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "kernels/base/device.h"
#include "trainer/tasks/job_data.h"
#include "trainer/report/run_output.h"

namespace tandem::cli {

// "CPU" or "CUDA".
const char* DeviceName(Device device);
// The first lines of a run: what is trained, where, in which layout, on what.
std::string Banner(const Job& job, const tasks::JobData& data, int num_ps, int num_trainers, Device device);

// Prints the table of a model's figures: the test split's ("test/hr@10") if there are any, else the validation's. `step` is
// the model's.
void PrintMetrics(const std::map<std::string, double>& metrics, int64_t step, const tasks::JobData& data);

// Prints the table and the paths of what was written.
void PrintReport(const report::RunSummary& summary, const tasks::JobData& data, const std::string& folder);

// summary.json of a run that ended badly: stopped or failed, with the steps that metrics.jsonl tells of and the best evaluation that the
// newest checkpoint does. It has no params_hash. Writes nothing for a
// run that had not begun or whose exit code says that a job, file or checkpoint was refused: an older run stays as it was.
void SummariseFailure(const std::string& folder, const Job& job, const report::RunLayout& layout, double seconds, int exit_code);

}  // namespace tandem::cli
