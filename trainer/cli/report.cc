#include "trainer/cli/report.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/count_text.h"
#include "kernels/base/terminal.h"
#include "kernels/base/utf8.h"
#include "proto/checkpoint.pb.h"
#include "trainer/checkpoint/folder.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/cli/process/exit_code.h"
#include "trainer/cli/process/signals.h"
#include "trainer/cli/version.h"
#include "trainer/job/layout.h"
#include "trainer/job/settings.h"
#include "trainer/report/pipeline_text.h"
#include "trainer/report/run_json.h"
#include "trainer/report/text_table.h"

namespace tandem::cli {

namespace {

std::string Cell(const std::map<std::string, double>& column, const std::string& metric) {
  const auto it = column.find(metric);
  if (it == column.end()) return "-";
  const bool counts = absl::EndsWith(metric, "_users");
  return absl::StrFormat("%.*f", counts ? 0 : 4, it->second);
}

// "1 trainer", "2 trainers"
std::string Count(int count, const char* noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

// Returns the newest manifest that can be read.
std::optional<CheckpointManifest> NewestManifest(const std::string& folder) {
  const std::vector<std::string> paths = checkpoint::ListCheckpoints(folder);
  for (auto path = paths.rbegin(); path != paths.rend(); ++path) {
    if (auto manifest = checkpoint::ReadManifest(*path); manifest.ok()) return *std::move(manifest);
  }
  return std::nullopt;
}

// True if the run itself has recorded its end. Trainers that are told to end because another role
// failed record "stopped".
bool IsSummed(const std::string& folder) {
  const std::optional<std::string> status = report::StatusOfRun(folder);
  return status.has_value() && (SignalReceived() || status != report::kStopped);
}

}  // namespace

void PrintFinished(const std::string& folder) {
  std::printf("the run in %s is already complete: %d steps\n", Printable(folder).c_str(),
              static_cast<int>(report::StepsOfRun(folder)));
  report::TextTable table({{"figure", report::TextTable::LEFT}, {"this run"}});
  for (const auto& [name, value] : report::MetricsOfRun(folder))
    table.Add({name, absl::StrFormat("%.4f", value)});
  std::printf("%s", table.TakeLines(TerminalColumns()).c_str());
}

void SummariseFailure(const std::string& folder, const Job& job, int num_ps, double seconds,
                      int exit_code) {
  if (IsRefusal(exit_code)) return;
  // A new run removes an older summary before it opens this file (report/run_output.h).
  const std::string path = folder + "/metrics.jsonl";
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return;  // a device may have no end
  std::ifstream metrics(path);
  if (!metrics || IsSummed(folder)) return;
  report::RunSummary summary;
  summary.job = job.name();
  summary.seed = job.seed();
  summary.status = ReceivedSignal() != 0 ? report::kStopped : "failed";
  summary.layout = report::LayoutOf(job, num_ps);
  summary.settings = job::SettingsOf(job);
  summary.program = ThisProgram();
  summary.seconds = seconds;
  for (std::string line; std::getline(metrics, line);) {
    const std::optional<report::RecordPlace> place = report::PlaceOfRecord(line);
    if (!place.has_value() || !place->epoch.has_value()) continue;
    summary.steps = place->step;
    summary.epochs = *place->epoch - 1;
  }
  if (const auto saved = NewestManifest(folder + "/checkpoints")) {
    summary.best_step = static_cast<int64_t>(saved->best_step());
    summary.best_epoch = static_cast<int64_t>(saved->best_epoch());
    summary.metrics = {saved->best_metrics().begin(), saved->best_metrics().end()};
  }
  // The caller reports the run's own error in any case.
  if (report::WriteSummary(folder, summary).ok()) report::WritePageOfRun(folder).IgnoreError();
}

const char* DeviceName(Device device) { return device.is_cuda() ? "CUDA" : "CPU"; }

namespace {

// "4 trainers", and how they share the work if that is more than the batch.
std::string TrainersText(const Job& job) {
  const Parallel& parallel = job.parallel();
  std::string text = Count(job::NumTrainers(job), "trainer");
  if (parallel.tp() == 1 && parallel.pp() == 1 && parallel.zero() == 0) return text;
  absl::StrAppend(&text, " (dp ", parallel.dp());
  if (parallel.tp() > 1) absl::StrAppend(&text, " x tp ", parallel.tp());
  if (parallel.pp() > 1) absl::StrAppend(&text, " x pp ", parallel.pp());
  if (parallel.zero() > 0) absl::StrAppend(&text, ", zero ", parallel.zero());
  return text + ")";
}

}  // namespace

std::string Banner(const Job& job, const tasks::JobData& data, int num_ps, Device device) {
  const std::string servers =
      num_ps == 0 ? "tables in this process" : Count(num_ps, "parameter server");
  return absl::StrFormat(
      "%s  seed %d  %s, %s x %s, %s\n%s from %s%s", Printable(job.name()), job.seed(), servers,
      TrainersText(job), Count(job.runtime().threads(), "thread"), DeviceName(device),
      data.Description(), Printable(job.data().path()), report::PipelineText(job));
}

namespace {

// Figures that share a table: ranks, and losses. A baseline of the one has nothing of the other.
const std::vector<std::vector<const char*>>& TablesOfMetrics() {
  static const auto* const tables = new std::vector<std::vector<const char*>>{
      {"hr@10", "ndcg@10", "sampled_hr@10", "sampled_ndcg@10", "cold_hr@10", "cold_ndcg@10",
       "cold_mean_log_rank", "cold_users", "warm_hr@10", "warm_ndcg@10", "warm_mean_log_rank",
       "warm_users"},
      {"text_loss", "loss"}};
  return *tables;
}

void PrintTable(const std::string& title, const std::map<std::string, double>& metrics,
                const std::vector<const char*>& names,
                const std::vector<tasks::ReferenceColumn>& references) {
  std::vector<const tasks::ReferenceColumn*> beside;
  for (const tasks::ReferenceColumn& column : references) {
    if (std::any_of(names.begin(), names.end(),
                    [&](const char* name) { return column.metrics.count(name) > 0; }))
      beside.push_back(&column);
  }
  std::vector<report::TextTable::Column> columns{{title, report::TextTable::LEFT}, {"this run"}};
  for (const tasks::ReferenceColumn* column : beside) columns.push_back({column->name});
  report::TextTable table(std::move(columns));
  bool empty = true;
  for (const char* name : names) {
    if (metrics.count(name) == 0) continue;
    std::vector<std::string> cells{name, Cell(metrics, name)};
    for (const tasks::ReferenceColumn* column : beside)
      cells.push_back(Cell(column->metrics, name));
    table.Add(std::move(cells));
    empty = false;
  }
  if (!empty) std::printf("\n%s", table.TakeLines(TerminalColumns()).c_str());
}

}  // namespace

void PrintMetrics(const std::map<std::string, double>& metrics, int64_t step,
                  const std::vector<tasks::ReferenceColumn>& references) {
  const bool tested = std::any_of(metrics.begin(), metrics.end(), [](const auto& metric) {
    return metric.first.rfind("test/", 0) == 0;
  });
  const std::string prefix = tested ? "test/" : "valid/";
  std::map<std::string, double> of_split;
  for (const auto& [name, value] : metrics) {
    if (name.rfind(prefix, 0) == 0) of_split[name.substr(prefix.size())] = value;
  }
  const std::string title =
      absl::StrFormat("%s, step %d", tested ? "test split" : "validation", step);
  for (const std::vector<const char*>& names : TablesOfMetrics())
    PrintTable(title, of_split, names, references);
}

void PrintReport(const report::RunSummary& summary, const std::string& folder) {
  std::printf("\n%d steps, %d epochs in %s  (%s samples/s, %s tokens/s while training)%s\n",
              static_cast<int>(summary.steps), static_cast<int>(summary.epochs),
              report::DurationText(summary.seconds).c_str(),
              CountText(summary.samples_per_second).c_str(),
              CountText(summary.tokens_per_second).c_str(),
              summary.status == report::kStopped ? "  stopped before its end" : "");
  if (summary.bubble.has_value()) {
    std::printf("pipeline: bubble %.0f %% simulated", 100 * summary.bubble->simulated);
    if (summary.bubble->measured)
      std::printf(", %.0f %% measured", 100 * *summary.bubble->measured);
    std::printf("\n");
  }
  if (summary.best_step > 0) PrintMetrics(summary.metrics, summary.best_step, summary.references);
  std::printf("\nparams_hash %s\n", report::HashText(*summary.params_hash).c_str());
  std::printf("wrote %s/{summary.json,metrics.jsonl,evaluations.jsonl,checkpoints/}\n",
              folder.c_str());
  std::printf("      %s/report.html for a browser, events.out.tfevents.* for TensorBoard\n",
              folder.c_str());
  std::fflush(stdout);
}

}  // namespace tandem::cli
