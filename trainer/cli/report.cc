#include "trainer/cli/report.h"

#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/device.h"
#include "trainer/cli/signals.h"
#include "trainer/data/floors.h"

namespace tandem::cli {

namespace {

constexpr size_t kMaxFloorInteractions = 20'000'000;  // counting transitions of a larger log would take over ten seconds

using Column = std::map<std::string, double>;  // by metric: "hr@10"

std::string ReachablePath(const std::string& log_path) { return log_path + ".reachable"; }

Column ReadReachable(const std::string& log_path) {
  Column column;
  std::ifstream file(ReachablePath(log_path));
  std::string name;
  double value;
  while (file >> name >> value) column[name] = value;
  return column;
}

void AddMetrics(Column& column, const std::string& prefix, const data::RankingMetrics& metrics) {
  column[prefix + "hr@10"] = metrics.hr10;
  column[prefix + "ndcg@10"] = metrics.ndcg10;
}

Column FloorColumn(const data::FloorRanks& ranks) {
  Column column;
  AddMetrics(column, "", data::Summarise(ranks.full));
  // Sampled floors tie often: the published figures take ties in random order.
  if (!ranks.sampled.empty()) AddMetrics(column, "sampled_", data::SummariseExpected(ranks.sampled));
  return column;
}

std::string Cell(const Column& column, const std::string& metric) {
  const auto it = column.find(metric);
  return it == column.end() ? "-" : absl::StrFormat("%.4f", it->second);
}

}  // namespace

absl::Status WriteReachable(const std::string& log_path, const data::RankingMetrics& reachable) {
  std::ofstream file(ReachablePath(log_path));
  file << "hr@10 " << reachable.hr10 << "\nndcg@10 " << reachable.ndcg10 << "\n";
  file.close();
  if (!file) return absl::NotFoundError(absl::StrCat("cannot write ", ReachablePath(log_path)));
  return absl::OkStatus();
}

namespace {

// "1 trainer", "2 trainers"
std::string Count(int count, const char* noun) { return absl::StrCat(count, " ", noun, count == 1 ? "" : "s"); }

// The machine's devices in words. Training runs on CPUs only so far; a GPU that is there is worth a word.
std::string DeviceText() {
  const CudaInfo cuda = QueryCuda();
  if (!cuda.built_in || cuda.num_devices == 0) return "CPU";
  return absl::StrFormat("CPU (%d CUDA devices not used: CUDA training is not built yet)", cuda.num_devices);
}

}  // namespace

void SummariseFailure(const std::string& folder, const Job& job, const loop::RunLayout& layout, double seconds) {
  // A run that begins removes an older summary before it opens this file (loop/run_output.h).
  std::ifstream metrics(folder + "/metrics.jsonl");
  if (!metrics || std::filesystem::exists(folder + "/summary.json")) return;
  loop::RunSummary summary;
  summary.job = job.name();
  summary.seed = job.seed();
  summary.status = ReceivedSignal() != 0 ? "stopped" : "failed";
  summary.layout = layout;
  summary.seconds = seconds;
  for (std::string line; std::getline(metrics, line);) {
    int64_t step, epoch;
    if (std::sscanf(line.c_str(), "{\"step\":%" SCNd64 ",\"epoch\":%" SCNd64, &step, &epoch) != 2) continue;
    summary.steps = step;
    summary.epochs = epoch - 1;
  }
  loop::WriteSummary(folder, summary).IgnoreError();  // the run's own error is reported in any case
}

std::string Banner(const Job& job, const loop::SequenceData& data, int num_ps, int num_trainers) {
  const std::string servers = num_ps == 0 ? "tables in this process" : Count(num_ps, "parameter server");
  return absl::StrFormat(
      "%s  seed %d  %s, %s x %s, %s\n%s users, %s items, %s interactions from %s", job.name(), job.seed(),
      servers, Count(num_trainers, "trainer"), Count(job.runtime().threads(), "thread"), DeviceText(),
      loop::CountText(static_cast<double>(data.interactions.users.size())),
      loop::CountText(static_cast<double>(data.interactions.num_items)),
      loop::CountText(static_cast<double>(data.interactions.items.values.size())), job.data().path());
}

void PrintTestMetrics(const std::map<std::string, double>& metrics, int64_t epoch, const Job& job,
                      const loop::SequenceData& data) {
  Column run, popularity, transitions;
  for (const auto& [name, value] : metrics) {
    if (name.rfind("test/", 0) == 0) run[name.substr(5)] = value;
  }
  if (data.interactions.items.values.size() <= kMaxFloorInteractions) {
    popularity = FloorColumn(data::PopularityRanks(data.interactions, data.negatives.get()));
    transitions = FloorColumn(data::TransitionRanks(data.interactions, data.negatives.get()));
  }
  const Column reachable = ReadReachable(job.data().path());
  std::printf("\n  test split, epoch %-5d %9s  %10s  %11s%s\n", static_cast<int>(epoch), "this run",
              "popularity", "transitions", reachable.empty() ? "" : "  best reachable");
  for (const char* metric : {"hr@10", "ndcg@10", "sampled_hr@10", "sampled_ndcg@10"}) {
    if (run.find(metric) == run.end()) continue;
    std::printf("  %-22s %9s  %10s  %11s", metric, Cell(run, metric).c_str(), Cell(popularity, metric).c_str(),
                Cell(transitions, metric).c_str());
    if (!reachable.empty()) std::printf("  %14s", Cell(reachable, metric).c_str());
    std::printf("\n");
  }
}

void PrintReport(const loop::RunSummary& summary, const Job& job, const loop::SequenceData& data,
                 const std::string& folder) {
  std::printf("\n%d steps, %d epochs in %s  (%s samples/s, %s tokens/s while training)\n", static_cast<int>(summary.steps),
              static_cast<int>(summary.epochs), loop::DurationText(summary.seconds).c_str(),
              loop::CountText(summary.samples_per_second).c_str(), loop::CountText(summary.tokens_per_second).c_str());
  PrintTestMetrics(summary.metrics, summary.best_epoch, job, data);
  std::printf("\nparams_hash %s\nwrote %s/{summary.json,metrics.jsonl,evaluations.jsonl,checkpoints/}\n",
              loop::HashText(summary.params_hash).c_str(), folder.c_str());
  std::fflush(stdout);
}

}  // namespace tandem::cli
