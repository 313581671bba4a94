#include "trainer/loop/replica/replica.h"

#include <vector>

#include "kernels/base/random.h"
#include "kernels/base/status_macros.h"
#include "trainer/job/job_options.h"
#include "trainer/job/parameter_placement.h"
#include "trainer/loop/replica/make_gradient_sync.h"
#include "trainer/loop/replica/precision.h"
#include "trainer/loop/replica/same_data.h"
#include "trainer/parallel/data_parallel/ddp.h"
#include "trainer/tasks/embedding_table.h"

namespace tandem::loop {

namespace {

// Extra wait, so that a collective's own error, which explains more, comes first.
constexpr absl::Duration kMargin = absl::Seconds(1);

}  // namespace

Replica::Replica(const Job& job, const tasks::JobData& data, const ReplicaEnvironment& environment)
    : job(job),
      data(data),
      environment(environment),
      group(*environment.group),
      clients(environment.clients),
      output(environment.output),
      pool(job.runtime().threads()),
      stream(&pool, environment.device),
      parameters(job.seed(), DType::F32, &stream),
      tables(tasks::MakeEmbeddingTables(job, clients.rows, &stream)),
      task(
          data.MakeTask(job, {.parameters = &parameters, .tables = tables.get(), .group = &group})),
      calendar(job, task->steps_per_epoch()),
      placements(job::PlacementsOf(job, parameters)),
      dense(job::DenseOptionsOf(job), &parameters,
            PlacedAs(parameters, placements.value_or(parallel::Placements()),
                     parallel::Placement::REPLICATED)),
      pushes(clients.rows, clients.pooled, static_cast<uint32_t>(group.rank())),
      optimizer(job::DistOptionsOf(job, calendar.total_steps()), &dense, clients.rows),
      state(job.train()),
      stop_vote(environment.stop_requested, &group, &stream),
      divergence(job.train(), &optimizer, output) {}

absl::Status Replica::Connect() {
  RETURN_IF_ERROR(placements.status());
  RETURN_IF_ERROR(VerifySameData(data, group, Deadline()));
  std::vector<TableSpec> tables = job::TableSpecsOf(job);
  const std::vector<TableSpec> dense_tables = job::DenseTableSpecsOf(job);
  tables.insert(tables.end(), dense_tables.begin(), dense_tables.end());
  RETURN_IF_ERROR(clients.tables->CreateTables(tables, Timeout()));
  comm::ProcessGroup* const gradients =
      environment.device_group != nullptr ? environment.device_group : &group;
  ASSIGN_OR_RETURN(sync, MakeGradientSync(job, {.parameters = &parameters,
                                                .placements = *placements,
                                                .group = gradients,
                                                .rows = clients.rows,
                                                .tables = clients.tables,
                                                .pushes = &pushes,
                                                .stream = &stream}));
  return absl::OkStatus();
}

absl::Status Replica::SetPrecision() {
  Precision precision;
  if (environment.compute) {
    precision.compute = *environment.compute;
  } else {
    const CheckpointManifest* resumed =
        environment.resume != nullptr ? &environment.resume->manifest : nullptr;
    ASSIGN_OR_RETURN(precision,
                     ChoosePrecision(job, task->Bf16Product(), resumed, stream, group, Deadline()));
  }
  compute = precision.compute;
  if (compute == DType::BF16) parameters.MakeShadows(stream);
  if (!precision.reason.empty()) Note(precision.reason);
  return absl::OkStatus();
}

absl::Status Replica::Barrier(const char* name, absl::Duration timeout) {
  const comm::CollectiveArgs args{.stream = &stream, .tag = StableHash(name), .timeout = timeout};
  return group.Await(group.Barrier(args), absl::Now() + timeout + kMargin);
}

absl::Status Replica::AwaitCommits() {
  RETURN_IF_ERROR(optimizer.AwaitCommit(Deadline()));
  return is_bsp() ? absl::OkStatus() : Barrier("commits", Timeout());
}

absl::Status Replica::AwaitWeights() {
  RETURN_IF_ERROR(AwaitCommits());
  RETURN_IF_ERROR(sync->AwaitWeights(Deadline()));
  if (is_bsp()) return absl::OkStatus();
  sync->PullWeights(0);  // the pull for the next step may lack other replicas' later commits
  return sync->AwaitWeights(Deadline());
}

absl::StatusOr<absl::uint128> Replica::VerifiedHash(const char* what) {
  const absl::uint128 hash = dense.State().Hash();
  RETURN_IF_ERROR(stream.status());  // a failed stream makes the hash meaningless
  RETURN_IF_ERROR(parallel::VerifyEqual(group, absl::Uint128Low64(hash), what, Deadline()));
  return hash;
}

void Replica::Note(const std::string& text) const {
  if (output != nullptr) output->Note(text);
}

}  // namespace tandem::loop
