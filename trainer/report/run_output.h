// The files that a run writes into its --out folder (metrics.jsonl, evaluations.jsonl,
// summary.json, report.html and TensorBoard's events), and the run's printed output. Only rank 0
// has one. The page and the events are pictures of the run. So their errors are notes, and end no
// run.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/numeric/int128.h"
#include "absl/status/statusor.h"
#include "kernels/base/clock.h"
#include "trainer/report/events/run_events.h"
#include "trainer/report/progress.h"
#include "trainer/report/step_observer.h"
#include "trainer/tasks/job_data.h"
#include "trainer/tasks/task.h"

namespace tandem::report {

struct EvaluationRecord {
  int64_t step = 0, epoch = 0;
  double train_loss = 0;  // the mean over the steps since the last evaluation
  bool best = false;
  std::string decides;                    // the metric that compares evaluations: "valid/mrr"
  std::map<std::string, double> metrics;  // the name includes the split: "valid/hr@10"
};

struct RunLayout {
  int ps = 0, dp = 1, tp = 1, pp = 1, zero = 0;
};
RunLayout LayoutOf(const Job& job, int num_ps);

// The status of a run that a signal ended before its last step.
inline constexpr char kStopped[] = "stopped", kCompleted[] = "completed";

// The idle part of a pipeline's steps, on the rank that is idle longest: as simulated with equal
// costs of all works and free messages, and as measured.
struct PipelineBubble {
  double simulated = 0;
  std::optional<double> measured;  // none on a GPU
};

// The program that made a run, for readers who compare runs.
struct RunProgram {
  std::string version;  // "tandem 0.1.0, commit 0123456789ab"
  // The device and the libraries, by name: {"CPU kernels", "AVX2, ..."}.
  std::vector<std::pair<std::string, std::string>> environment;
};

struct RunSummary {
  std::string job, status;
  uint64_t seed = 0;
  int64_t steps = 0, epochs = 0, best_epoch = 0, best_step = 0;
  double seconds = 0;
  RunLayout layout;
  std::map<std::string, double> metrics;
  double samples_per_second = 0, tokens_per_second = 0;
  std::optional<absl::uint128> params_hash;  // a failed run has none
  // Weights, gradients and optimizer slots between two steps, by rank.
  std::vector<uint64_t> model_state_bytes;
  // By axis of the mesh: what collectives move in a step (CollectiveMeter), at most of all ranks.
  std::vector<std::pair<std::string, uint64_t>> collective_bytes;
  // Rows pulled from tables, over all trainers: counted by the trainers, and by the tables.
  uint64_t pulled_rows = 0, served_rows = 0;
  std::vector<uint64_t> pulled_rows_by_rank;
  uint64_t sparse_rows = 0, dense_parameters = 0;
  std::optional<PipelineBubble> bubble;            // none without a pipeline
  std::vector<tasks::ReferenceColumn> references;  // JobData::References; a failed run has none
  std::vector<std::pair<std::string, std::string>> settings;  // SettingsOf the job
  RunProgram program;
};

std::string HashText(absl::uint128 hash);  // 32 hexadecimal digits

class RunOutput final : public StepObserver {
 public:
  // Makes the folder. An older run's files stay untouched until this run begins, because this run
  // may yet be refused.
  static absl::StatusOr<std::unique_ptr<RunOutput>> Create(const std::string& folder,
                                                           LogFormat format);
  ~RunOutput() override;

  // Replaces the older run. REQUIRES: one of the two Begin functions is called before the first
  // record.
  absl::Status BeginAnew();
  // Continues the older run. Keeps only what belongs to steps up to `last_step`.
  absl::Status BeginAfter(int64_t last_step);

  // Each returns ResourceExhausted, naming the file or standard output, if the record cannot be
  // written. A file that was removed from the folder is such an error too. Progress lines are best
  // effort: the next record reports what they could not write.
  // AfterStep writes the records of logged steps.
  absl::Status AfterStep(StepRecord& record, absl::Time deadline) override;
  absl::Status Evaluated(const EvaluationRecord& record);
  // Drops the record of an evaluation after step `step` or later, because that evaluation is about
  // to be repeated.
  absl::Status TakeBackEvaluation(int64_t step);
  void Note(const std::string& text);  // a line for the reader, in text mode
  absl::Status Finish(const RunSummary& summary);

  const std::string& folder() const { return folder_; }

 private:
  RunOutput(std::string folder, LogFormat format) : folder_(std::move(folder)), progress_(format) {}
  absl::Status Open(const char* mode);
  // Notes that the events end, if they do.
  void KeepEvents(const absl::Status& status);
  std::string PathOf(const char* name) const { return folder_ + "/" + name; }

  const std::string folder_;
  Progress progress_;
  Stopwatch since_begin_;
  std::FILE* metrics_ = nullptr;
  std::FILE* evaluations_ = nullptr;
  std::unique_ptr<RunEvents> events_;  // null once an event could not be written
};

// Writes summary.json alone, for a run that failed before or outside the loop.
absl::Status WriteSummary(const std::string& folder, const RunSummary& summary);

// Returns the page (page/run_page.h) of the runs that `folders` hold. InvalidArgument names every
// folder that holds no run. REQUIRES: folders is not empty.
absl::StatusOr<std::string> MakeRunPage(const std::vector<std::string>& folders);
// Writes a page. Replaces an older file at once and whole.
absl::Status WriteRunPage(const std::string& page, const std::string& path);
// Makes and writes the page of the run in `folder`, which is at RunPagePath of the folder.
absl::Status WritePageOfRun(const std::string& folder);
std::string RunPagePath(const std::string& folder);

}  // namespace tandem::report
