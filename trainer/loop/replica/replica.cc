#include "trainer/loop/replica/replica.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/random.h"
#include "kernels/base/status_macros.h"
#include "trainer/comm/text.h"
#include "trainer/job/job_options.h"
#include "trainer/job/layout.h"
#include "trainer/job/parameter_placement.h"
#include "trainer/loop/replica/make_gradient_sync.h"
#include "trainer/loop/replica/precision.h"
#include "trainer/loop/replica/same_data.h"
#include "trainer/loop/replica/state_bytes.h"
#include "trainer/loop/replica/whole_model.h"
#include "trainer/parallel/data_parallel/ddp.h"
#include "trainer/tasks/embedding_table.h"

namespace tandem::loop {

namespace {

// Extra wait, so that a collective's own error, which explains more, comes first.
constexpr absl::Duration kMargin = absl::Seconds(1);

// Adds up the ranks' values modulo 2^128.
absl::Status SumOverRanks(comm::ProcessGroup& group, absl::uint128* value, absl::Time deadline) {
  // Four limbs of 32 bits, whose sums fit 64 bits.
  uint64_t limbs[4];
  for (int i = 0; i < 4; ++i) limbs[i] = absl::Uint128Low64(*value >> (32 * i)) & 0xffffffffu;
  RETURN_IF_ERROR(group.Await(
      group.AllReduce(DenseView(limbs, Shape{4}), {.tag = StableHash("hash")}), deadline));
  *value = 0;
  for (int i = 0; i < 4; ++i) *value += absl::uint128(limbs[i]) << (32 * i);
  return absl::OkStatus();
}

parallel::PipelineOptions PipelineOptionsOf(const Job& job) {
  return {.schedule = job::ScheduleOptionsOf(job),
          .recompute = job.parallel().recompute() == Parallel::FULL ? parallel::Recompute::FULL
                                                                    : parallel::Recompute::NONE,
          .layers_per_stage = {job.parallel().layers_per_stage().begin(),
                               job.parallel().layers_per_stage().end()}};
}

}  // namespace

absl::StatusOr<Meshes> MakeMeshes(const Job& job, const tasks::JobData& data,
                                  const ReplicaEnvironment& environment) {
  if (data.num_embeddings() < job.parallel().tp()) {
    return absl::InvalidArgumentError(absl::StrCat("parallel.tp is ", job.parallel().tp(),
                                                   "; allowed: 1 .. ", data.num_embeddings(),
                                                   ", the size of the vocabulary"));
  }
  const parallel::MeshShape shape = job::MeshShapeOf(job);
  const absl::Time deadline = absl::Now() + absl::Seconds(job.runtime().timeout_seconds());
  Meshes meshes;
  ASSIGN_OR_RETURN(meshes.host,
                   parallel::Mesh::Create(shape, environment.group, Device{}, deadline));
  if (environment.device_group != nullptr) {
    ASSIGN_OR_RETURN(meshes.device, parallel::Mesh::Create(shape, environment.device_group,
                                                           environment.device, deadline));
  }
  ASSIGN_OR_RETURN(meshes.pipeline, parallel::Pipeline::Create(PipelineOptionsOf(job),
                                                               meshes.arrays().pp(), deadline));
  return meshes;
}

Replica::Replica(const Job& job, const tasks::JobData& data, const ReplicaEnvironment& environment,
                 const Meshes& meshes)
    : job(job),
      data(data),
      environment(environment),
      mesh(*meshes.host),
      arrays(meshes.arrays()),
      pipeline(meshes.pipeline),
      world(*environment.group),
      clients(environment.clients),
      output(environment.output),
      pool(job.runtime().threads()),
      stream(&pool, environment.device),
      parameters(job.seed(), environment.parameters, &stream,
                 /*has_values=*/ZeroStageOf(job) < 3),
      tensor_group(mesh.shape().tp > 1 ? std::make_unique<parallel::TensorGroup>(
                                             &arrays.tp(), job.parallel().sequence_parallel())
                                       : nullptr),
      has_tables(!job::TableSpecsOf(job).empty()),
      tables(pipeline.has_an_end()
                 ? tasks::MakeEmbeddingTables(job, clients.rows, &stream,
                                              mesh.shape().tp > 1 ? &mesh.tp() : nullptr)
                 : nullptr),
      task(data.MakeTask(job, {.parameters = &parameters,
                               .tables = tables.get(),
                               .group = &mesh.dp(),
                               .stages = &mesh.pp(),
                               .tp = tensor_group.get(),
                               .pipeline = &pipeline})),
      calendar(job, task->steps_per_epoch()),
      placements(job::PlacementsOf(job, parameters)),
      dense(job::DenseOptionsOf(job), &parameters,
            UpdatedHere(job, parameters, placements.value_or(parallel::Placements()), mesh)),
      pushes(clients.rows, clients.pooled, static_cast<uint32_t>(job::ClientOf(job, world.rank()))),
      optimizer(job::DistOptionsOf(job, calendar.total_steps()), &dense, clients.rows),
      state(job.train()),
      stop_vote(environment.stop_requested, &world, &stream),
      divergence(job.train(), &optimizer, output) {}

absl::Status Replica::Connect() {
  RETURN_IF_ERROR(placements.status());
  const auto is_cut = [](const auto& parameter) { return !parameter->slice.whole(); };
  if (tensor_group != nullptr &&
      std::none_of(parameters.all().begin(), parameters.all().end(), is_cut)) {
    return absl::InternalError(
        absl::StrCat("parallel.tp is ", mesh.shape().tp, ", but the model cuts no parameter"));
  }
  RETURN_IF_ERROR(CheckMemory(job, parameters, dense, world, Deadline()));
  ASSIGN_OR_RETURN(whole_model, WholeModel(parameters, mesh.pp(), Deadline()));
  ASSIGN_OR_RETURN(holders,
                   parallel::HolderGroups::Create(parameters, &mesh.tp(), &mesh.pp(), Deadline()));
  RETURN_IF_ERROR(VerifySameData(data, world, Deadline()));
  std::vector<TableSpec> tables = job::TableSpecsOf(job);
  const std::vector<TableSpec> dense_tables = job::DenseTableSpecsOf(job);
  tables.insert(tables.end(), dense_tables.begin(), dense_tables.end());
  RETURN_IF_ERROR(clients.tables->CreateTables(tables, Timeout()));
  if (&arrays != &mesh) {
    ASSIGN_OR_RETURN(array_holders, parallel::HolderGroups::Create(parameters, &arrays.tp(),
                                                                   &arrays.pp(), Deadline()));
  }
  ASSIGN_OR_RETURN(
      sync, MakeGradientSync(job, {.parameters = &parameters,
                                   .placements = *placements,
                                   .group = &arrays.dp(),
                                   .holders = (array_holders ? array_holders : holders).get(),
                                   .sum_every_pass = !HasRoomForGradients(job, parameters, dense),
                                   .rows = clients.rows,
                                   .tables = clients.tables,
                                   .pushes = &pushes,
                                   .stream = &stream}));
  if (const uint64_t bytes = arrays.dp().private_bytes(); bytes > 0) {
    Note(absl::StrFormat("no shared memory for %.0f MB of gradients; their sums take one more copy",
                         std::ceil(static_cast<double>(bytes) / (1 << 20))));
  }
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
                     ChoosePrecision(job, task->Bf16Product(), resumed, stream, world, Deadline()));
  }
  compute = precision.compute;
  if (compute == DType::BF16) parameters.MakeShadows(stream);
  if (!precision.reason.empty()) Note(precision.reason);
  return absl::OkStatus();
}

absl::Status Replica::Barrier(const char* name, absl::Duration timeout) {
  const comm::CollectiveArgs args{.stream = &stream, .tag = StableHash(name), .timeout = timeout};
  return world.Await(world.Barrier(args), absl::Now() + timeout + kMargin);
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

optim::DenseState Replica::OwnedState() const {
  optim::DenseState state = dense.CountedState();
  if (job.parallel().zero() > 0 || mesh.dp().rank() == 0) return state;
  for (optim::DenseState::Entry& entry : state.entries) entry = {};
  return state;
}

absl::StatusOr<absl::uint128> Replica::VerifiedHash(const char* what) {
  if (!is_cut()) {
    const absl::uint128 hash = dense.State().Hash();
    RETURN_IF_ERROR(stream.status());  // a failed stream makes the hash meaningless
    RETURN_IF_ERROR(parallel::VerifyEqual(mesh.dp(), absl::Uint128Low64(hash), what, Deadline()));
    return hash;
  }
  // Replicas have the same weights here, and holders the same of their parameters.
  const auto verify = [&](comm::ProcessGroup& group, const auto& is_shared) -> absl::Status {
    optim::DenseState held{&parameters, {}, {}};
    for (const auto& parameter : parameters.all()) {
      const LeafNode& leaf = parameter->variable.leaf();
      optim::DenseState::Entry& entry = held.entries.emplace_back();
      if (!is_shared(parameter->record)) continue;
      if (ZeroStageOf(job) == 3)
        entry = {leaf.value_part().begin, leaf.value_part().elements, {}};
      else
        entry = {0, leaf.held_value(), {}};
    }
    const absl::uint128 hash = held.Hash();
    RETURN_IF_ERROR(stream.status());
    return parallel::VerifyEqual(group, absl::Uint128Low64(hash), what, Deadline());
  };
  absl::uint128 sum = OwnedState().Hash();
  if (ZeroStageOf(job) < 3)
    RETURN_IF_ERROR(verify(mesh.dp(), [](const GradientRecord&) { return true; }));
  for (const auto& [holders_of, group] : holders->groups()) {
    RETURN_IF_ERROR(verify(
        *group, [n = holders_of](const GradientRecord& record) { return record.holders == n; }));
  }
  if (holders->tied() != nullptr) {
    RETURN_IF_ERROR(
        verify(*holders->tied(), [](const GradientRecord& record) { return record.tied_over_pp; }));
  }
  RETURN_IF_ERROR(SumOverRanks(world, &sum, Deadline()));
  return sum;
}

int64_t Replica::num_elements() const {
  int64_t elements = 0;
  for (const optim::LogicalParameter& parameter : whole_model)
    elements += parameter.shape.num_elements();
  return elements;
}

absl::StatusOr<std::string> Replica::FoundByAny(const std::string& found) const {
  if (!is_cut()) return found;
  return comm::FirstText(world, found, {.tag = StableHash("found"), .timeout = Timeout()});
}

void Replica::Note(const std::string& text) const {
  if (output != nullptr) output->Note(text);
}

}  // namespace tandem::loop
