// `tandem bench schedule`: how long pipeline schedules take when every kernel is a wait of fixed
// length, beside the verifier's makespan. So what the executor and its messages cost shows.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "kernels/base/clock.h"
#include "kernels/base/status_macros.h"
#include "trainer/bench/commands.h"
#include "trainer/bench/figures.h"
#include "trainer/cli/help_text.h"
#include "trainer/cli/process/failure.h"
#include "trainer/comm/host/thread_group.h"
#include "trainer/parallel/pipeline/executor.h"
#include "trainer/parallel/pipeline/verifier.h"
#include "trainer/report/text_table.h"

namespace tandem::bench {

namespace {

using parallel::PipelineSchedule;
using parallel::StageArrays;

constexpr int64_t kElements = 64 * 128;  // of a message: a few windows of a small model

// Waits in place of each kernel.
class Waits : public parallel::StageRunner {
 public:
  Waits(const PipelineSchedule& schedule, int rank, absl::Duration of_chunk)
      : schedule_(schedule), rank_(rank), of_chunk_(of_chunk) {}

  StageArrays ForInput(int, int) override { return Message(); }
  StageArrays ForOutputGradient(int, int) override { return Message(); }
  absl::StatusOr<StageArrays> Forward(int chunk, int, StageArrays) override {
    absl::SleepFor(of_chunk_);
    const bool is_last = schedule_.StageOf(rank_, chunk) + 1 == schedule_.num_stages();
    return is_last ? StageArrays() : Message();
  }
  absl::StatusOr<StageArrays> Backward(int chunk, int, StageArrays, bool weights) override {
    absl::SleepFor(of_chunk_ * (weights ? 2 : 1));
    return schedule_.StageOf(rank_, chunk) == 0 ? StageArrays() : Message();
  }
  absl::Status BackwardWeight(int, int) override {
    absl::SleepFor(of_chunk_);
    return absl::OkStatus();
  }

 private:
  static StageArrays Message() { return {Tensor::Zeros(Shape{kElements}, DType::F32)}; }

  const PipelineSchedule& schedule_;
  const int rank_;
  const absl::Duration of_chunk_;
};

// Runs the schedule on a thread for each rank. Returns the seconds of each repetition.
absl::StatusOr<std::vector<double>> RunSchedule(const PipelineSchedule& schedule,
                                                const ScheduleBenchOptions& options) {
  const absl::Duration of_chunk = absl::Milliseconds(options.milliseconds) / schedule.num_chunks;
  const absl::Time deadline = absl::Now() + absl::Minutes(10);
  auto groups = comm::ThreadGroup::Create(schedule.num_ranks(), "stages", absl::Minutes(10),
                                          comm::ThreadGroup::Sending::WAITS_FOR_RECV);
  std::vector<double> seconds;
  std::vector<absl::Status> results(groups.size());
  std::vector<std::thread> threads;
  const auto run_rank = [&](int rank) -> absl::Status {
    ThreadPool pool(1);
    Stream stream(&pool);
    ASSIGN_OR_RETURN(
        parallel::PipelineEdges edges,
        parallel::MakeEdges(*groups[rank], /*is_ring=*/schedule.num_chunks > 1, deadline));
    Waits waits(schedule, rank, of_chunk);
    parallel::PipelineExecutor executor(schedule, rank, &edges, &stream, nullptr);
    for (int repetition = 0; repetition < options.repetitions; ++repetition) {
      RETURN_IF_ERROR(groups[rank]->Await(groups[rank]->Barrier({}), deadline));
      const Stopwatch watch;
      RETURN_IF_ERROR(executor.Run(waits, deadline));
      RETURN_IF_ERROR(groups[rank]->Await(groups[rank]->Barrier({}), deadline));
      if (rank == 0) seconds.push_back(watch.Seconds());
    }
    return absl::OkStatus();
  };
  for (int rank = 0; rank < schedule.num_ranks(); ++rank)
    threads.emplace_back([&, rank] { results[rank] = run_rank(rank); });
  for (std::thread& thread : threads) thread.join();
  for (absl::Status& result : results) RETURN_IF_ERROR(result);
  return seconds;
}

absl::Status Measure(const ScheduleBenchOptions& options) {
  FigureFile json(options.json);
  RETURN_IF_ERROR(json.status());
  report::TextTable table({{"schedule", report::TextTable::LEFT, 11},
                           {"simulated ms", {}, 12},
                           {"measured ms", {}, 11},
                           {"ratio", {}, 5},
                           {"bubble %", {}, 8}});
  std::vector<std::string> objects;
  for (const parallel::ScheduleKind kind : parallel::kScheduleKinds) {
    const bool has_chunks = kind == parallel::ScheduleKind::INTERLEAVED && options.stages > 1;
    const PipelineSchedule schedule = parallel::MakeSchedule(
        {kind, options.stages, has_chunks ? options.virtual_stages : 1, options.microbatches});
    ASSIGN_OR_RETURN(const parallel::ScheduleReport report, parallel::VerifySchedule(schedule));
    const double simulated = report.makespan * options.milliseconds;
    ASSIGN_OR_RETURN(const std::vector<double> seconds, RunSchedule(schedule, options));
    const double measured = *std::min_element(seconds.begin(), seconds.end()) * 1e3;
    table.Add({NameOf(kind), FigureText(simulated, 1), FigureText(measured, 1),
               FigureText(measured / simulated, 3),
               absl::StrFormat("%.1f", 100 * report.bubble())});
    std::fputs(table.TakeLines(cli::HelpColumns()).c_str(), stdout);
    std::fflush(stdout);
    objects.push_back(
        absl::StrFormat(R"({"schedule":"%s","stages":%d,"virtual_stages":%d,"microbatches":%d,)"
                        R"("simulated_ms":%.3f,"measured_ms":%.3f,"bubble":%.6f})",
                        NameOf(kind), options.stages, schedule.num_chunks, options.microbatches,
                        simulated, measured, report.bubble()));
  }
  return json.Write(objects);
}

}  // namespace

int BenchSchedule(const ScheduleBenchOptions& options) {
  const absl::Status status = Measure(options);
  return status.ok() ? 0 : cli::ReportError(status);
}

}  // namespace tandem::bench
