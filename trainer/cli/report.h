// The end of a run for its reader: its figures, beside baselines that learn nothing and, for a
// generated log, beside the best that any model can reach.
// Thread rule: main thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/base/device.h"
#include "trainer/report/run_output.h"
#include "trainer/tasks/job_data.h"

namespace tandem::cli {

// "CPU" or "CUDA".
const char* DeviceName(Device device);
// The first lines of a run: the model, the data, the layout, the device.
std::string Banner(const Job& job, const tasks::JobData& data, int num_ps, Device device);

// Prints the table of a model's figures: the test split's ("test/hr@10") if there are any, else the
// validation split's, beside the references. `step` is the model's step.
void PrintMetrics(const std::map<std::string, double>& metrics, int64_t step,
                  const std::vector<tasks::ReferenceColumn>& references);

// Prints the table, and the paths of the written files.
void PrintReport(const report::RunSummary& summary, const std::string& folder);

// Prints the figures of the completed run in `folder`, with which nothing is left to do.
void PrintFinished(const std::string& folder);

// Writes the summary.json of a run that was stopped or failed. It holds the last step in
// metrics.jsonl and the best evaluation in the newest checkpoint, and no params_hash. Writes
// nothing for a run that had not begun, or whose exit code says that a job, file or checkpoint was
// refused. So an older run's summary stays untouched.
void SummariseFailure(const std::string& folder, const Job& job, int num_ps, double seconds,
                      int exit_code);

}  // namespace tandem::cli
