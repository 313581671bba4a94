#include "trainer/loop/run_summary.h"

#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/random.h"
#include "kernels/base/status_macros.h"
#include "trainer/job/settings.h"
#include "trainer/loop/checkpointing.h"
#include "trainer/loop/replica/state_bytes.h"
#include "trainer/report/server_watch.h"

namespace tandem::loop {

namespace {

report::RunSummary FiguresOf(const Replica& replica, const report::Throughput& throughput,
                             const std::string& status) {
  const RunState& state = replica.state;
  report::RunSummary summary;
  summary.job = replica.job.name();
  summary.status = status;
  summary.seed = replica.job.seed();
  summary.steps = state.step();
  summary.epochs = replica.calendar.EpochsUpTo(state.step());
  summary.best_epoch = state.best_epoch();
  summary.best_step = state.best_step();
  summary.seconds = replica.since_begin.Seconds();
  summary.layout = report::LayoutOf(replica.job, replica.environment.num_servers);
  summary.metrics = state.best_metrics();
  summary.samples_per_second = throughput.samples_per_second();
  summary.tokens_per_second = throughput.tokens_per_second();
  summary.dense_parameters = static_cast<uint64_t>(replica.num_elements());
  summary.settings = job::SettingsOf(replica.job);
  summary.program = replica.environment.program;
  return summary;
}

// Adds the owners' and the tables' shares to the hash of the state that the replica holds.
absl::Status AddHash(const Replica& replica, absl::uint128 held, report::RunSummary* summary) {
  ASSIGN_OR_RETURN(const ps::HashResult sparse,
                   replica.clients.tables->Hash().Wait(replica.Deadline()));
  optim::DenseState elsewhere{
      &replica.parameters, replica.dense.slot_names(),
      std::vector<optim::DenseState::Entry>(replica.parameters.all().size())};
  RETURN_IF_ERROR(ReadElsewhere(replica, &elsewhere, replica.Deadline()));
  summary->params_hash = held + elsewhere.Hash() + sparse.hash;
  summary->sparse_rows = sparse.num_rows;
  return absl::OkStatus();
}

// `of_others` are the statistics that the other replicas' clients keep.
absl::Status AddStatistics(const Replica& replica, const StatisticsReply& of_others,
                           report::RunSummary* summary) {
  if (replica.divergence.num_skipped() > 0) {
    replica.Note(absl::StrCat(replica.divergence.num_skipped(),
                              " steps were skipped: their loss or gradients were not finite"));
  }
  ASSIGN_OR_RETURN(StatisticsReply statistics,
                   replica.clients.tables->Statistics().Wait(replica.Deadline()));
  summary->served_rows = statistics.pulled_rows();
  ps::MergeStatistics(of_others, &statistics);
  for (const std::string& note :
       report::ServerNotes(statistics, /*may_be_stale=*/!replica.is_bsp()))
    replica.Note(note);
  for (const std::string& line : replica.clients.tables->Report()) replica.Note(line);
  return absl::OkStatus();
}

// Returns the numbers of all ranks. Collective.
absl::StatusOr<std::vector<uint64_t>> ByRank(const Replica& replica, uint64_t mine,
                                             const char* tag) {
  std::vector<uint64_t> numbers(static_cast<size_t>(replica.world.size()), 0);
  numbers[replica.world.rank()] = mine;
  RETURN_IF_ERROR(replica.world.Await(
      replica.world.AllReduce(DenseView(numbers.data(), Shape{replica.world.size()}),
                              {.tag = StableHash(tag)}),
      replica.Deadline()));
  return numbers;
}

// Collective.
absl::Status AddBubble(Replica& replica, const StageTimes& times, report::RunSummary* summary) {
  if (replica.mesh.shape().pp == 1) return absl::OkStatus();
  // The longest list, which is the first stage's, and, negative, the least work.
  double most[2] = {times.seconds, -times.busy_seconds};
  RETURN_IF_ERROR(replica.world.Await(
      replica.world.AllReduce(DenseView(most, Shape{2}),
                              {.op = comm::ReduceOp::MAX, .tag = StableHash("bubble")}),
      replica.Deadline()));
  report::PipelineBubble& bubble = summary->bubble.emplace();
  bubble.simulated = replica.pipeline.report().bubble();
  if (most[0] > 0) bubble.measured = 1 + most[1] / most[0];
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<report::RunSummary> Summarize(Replica& replica, RunObservers& observers,
                                             const StageTimes& times, const std::string& status) {
  RETURN_IF_ERROR(replica.AwaitWeights());
  RETURN_IF_ERROR(observers.all.Finish(replica.Deadline()));
  ASSIGN_OR_RETURN(const absl::uint128 held, replica.VerifiedHash("weights"));
  report::RunSummary summary = FiguresOf(replica, observers.throughput, status);
  ASSIGN_OR_RETURN(const StatisticsReply of_others,
                   report::GatherStatistics(replica.world, replica.clients.tables->OwnStatistics(),
                                            replica.Deadline()));
  std::vector<uint64_t> largest = observers.collectives.bytes_per_step();
  RETURN_IF_ERROR(replica.world.Await(
      replica.world.AllReduce(
          DenseView(largest.data(), Shape{static_cast<int64_t>(largest.size())}),
          {.op = comm::ReduceOp::MAX, .tag = StableHash("bytes")}),
      replica.Deadline()));
  for (size_t axis = 0; axis < observers.collectives.axes().size(); ++axis) {
    summary.collective_bytes.emplace_back(observers.collectives.axes()[axis].first, largest[axis]);
  }
  ASSIGN_OR_RETURN(
      summary.model_state_bytes,
      ByRank(replica, StateBytesOf(replica.parameters, *replica.sync, replica.dense).total(),
             "state bytes"));
  ASSIGN_OR_RETURN(
      summary.pulled_rows_by_rank,
      ByRank(replica, replica.tables != nullptr ? replica.tables->num_pulled() : 0, "pulled rows"));
  summary.pulled_rows = std::accumulate(summary.pulled_rows_by_rank.begin(),
                                        summary.pulled_rows_by_rank.end(), uint64_t{0});
  RETURN_IF_ERROR(AddBubble(replica, times, &summary));
  if (replica.output != nullptr) {
    RETURN_IF_ERROR(AddHash(replica, held, &summary));
    RETURN_IF_ERROR(AddStatistics(replica, of_others, &summary));
  }
  // No replica leaves and takes its part of the job down before rank 0 has read everything.
  RETURN_IF_ERROR(replica.Barrier("end", replica.Timeout()));
  if (replica.output != nullptr) {
    // The others need not wait for a count over all data, and for files.
    summary.references = replica.data.References();
    RETURN_IF_ERROR(replica.output->Finish(summary));
  }
  return summary;
}

}  // namespace tandem::loop
