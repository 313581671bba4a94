// The end of a run for its reader: test figures beside what no learning reaches and, for a generated log, what nobody can
// exceed. Thread rule: main thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "trainer/data/ranking.h"
#include "trainer/loop/run_output.h"
#include "trainer/loop/sequence_rec_task.h"

namespace tandem::cli {

// The first line of a run: what is trained, where, in which layout.
std::string Banner(const Job& job, const loop::SequenceData& data, int num_ps, int num_trainers);

// Prints the table of test figures: those of `metrics` that are named "test/...". `epoch` is the model's.
void PrintTestMetrics(const std::map<std::string, double>& metrics, int64_t epoch, const Job& job,
                      const loop::SequenceData& data);

// Prints the table and the paths of what was written.
void PrintReport(const loop::RunSummary& summary, const Job& job, const loop::SequenceData& data,
                 const std::string& folder);

// summary.json of a run that ended badly: stopped or failed, with the steps that metrics.jsonl tells of. Writes nothing for a
// run that had not begun, so that a mistyped command leaves an older run as it was.
void SummariseFailure(const std::string& folder, const Job& job, const loop::RunLayout& layout, double seconds);

// The best reachable score of a generated log lies beside it, in PATH.reachable.
absl::Status WriteReachable(const std::string& log_path, const data::RankingMetrics& reachable);

}  // namespace tandem::cli
