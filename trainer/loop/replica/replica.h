// One rank's part of a replica of the model: its task and weights, their optimizers and owners, and
// how far its run has come. The loop's other objects (step, evaluations, checkpoints) act on it.
// Thread rule: the step's thread.
// Invariant: between steps, all replicas have the same dense weights.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/numeric/int128.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "kernels/base/clock.h"
#include "trainer/loop/replica/divergence_guard.h"
#include "trainer/loop/replica/replica_environment.h"
#include "trainer/loop/replica/run_state.h"
#include "trainer/loop/replica/step_calendar.h"
#include "trainer/loop/replica/stop_vote.h"
#include "trainer/parallel/gradient_sync.h"
#include "trainer/parallel/holder_groups.h"
#include "trainer/parallel/mesh.h"
#include "trainer/parallel/pipeline/pipeline.h"
#include "trainer/parallel/placement.h"
#include "trainer/parallel/tensor/tensor_group.h"
#include "trainer/sparse/remote_embedding.h"
#include "trainer/sparse/step_optimizer.h"
#include "trainer/sparse/step_pushes.h"
#include "trainer/tasks/job_data.h"

namespace tandem::loop {

// The groups of a rank: for arrays in the host's memory, and for arrays where the rank computes.
// And the rank's place in its pipeline.
struct Meshes {
  std::unique_ptr<parallel::Mesh> host, device;  // device: null on a CPU

  parallel::Pipeline pipeline;

  const parallel::Mesh& arrays() const { return device != nullptr ? *device : *host; }
};
// Makes the meshes of the job's layout. InvalidArgument if the data is too small for the layout, or
// with what is wrong with the pipeline's schedule.
// Collective over all trainers.
absl::StatusOr<Meshes> MakeMeshes(const Job& job, const tasks::JobData& data,
                                  const ReplicaEnvironment& environment);

struct Replica {
  // REQUIRES: all arguments outlive the replica.
  Replica(const Job& job, const tasks::JobData& data, const ReplicaEnvironment& environment,
          const Meshes& meshes);

  // Creates the tables and makes `sync`. DataLoss if the replicas read different data. Collective.
  absl::Status Connect();
  // Sets `compute`, and gives the parameters their bf16 shadows if needed. Collective.
  absl::Status SetPrecision();

  // Waits for all replicas. Collective.
  absl::Status Barrier(const char* name, absl::Duration timeout);
  // Waits until the last commit of every replica is applied. Collective except in BSP, where the
  // own commit implies all others.
  absl::Status AwaitCommits();
  // Like AwaitCommits. Also brings parameters with an owner elsewhere up to date with the commits.
  absl::Status AwaitWeights();
  // Returns the hash of the dense state that the trainers hold. Internal if replicas differ in what
  // each of them holds whole; `what` names the state in the error. Collective.
  absl::StatusOr<absl::uint128> VerifiedHash(const char* what);
  // Returns the entries that this rank writes to a checkpoint: over all ranks, each element once.
  optim::DenseState OwnedState() const;
  // True if each rank has only a part of the weights or moments, so that ranks must share what they
  // find.
  bool is_cut() const { return job.parallel().zero() > 0 || mesh.replica().size() > 1; }
  // The ranks whose counted ranges together are the dense parameters, each element once.
  comm::ProcessGroup& parts() const { return job.parallel().zero() > 0 ? world : mesh.replica(); }
  int64_t num_elements() const;  // of the dense parameters of all stages
  // Returns what the lowest rank has found, or "" if no rank has found anything. With all state on
  // every rank that is what this rank has found. Collective.
  absl::StatusOr<std::string> FoundByAny(const std::string& found) const;

  bool is_bsp() const { return job.ps().consistency() == BSP; }
  absl::Duration Timeout() const { return absl::Seconds(job.runtime().timeout_seconds()); }
  absl::Time Deadline() const { return absl::Now() + Timeout(); }
  // Tells the user, at rank 0.
  void Note(const std::string& text) const;

  const Job& job;
  const tasks::JobData& data;
  const ReplicaEnvironment& environment;
  const parallel::Mesh& mesh;
  const parallel::Mesh& arrays;  // its groups' arrays lie where the rank computes
  const parallel::Pipeline& pipeline;
  comm::ProcessGroup& world;  // all trainers
  const ps::Clients clients;
  report::RunOutput* const output;  // null except at rank 0
  const Stopwatch since_begin;

  ThreadPool pool;
  Stream stream;
  ParameterSet parameters;                                    // of this rank's stages
  const std::unique_ptr<parallel::TensorGroup> tensor_group;  // null: the model is whole
  const bool has_tables;  // servers hold rows of the model, which this rank may not need
  // Null: embeddings are dense parameters, or other stages'.
  const std::unique_ptr<sparse::RemoteEmbedding> tables;
  const std::unique_ptr<tasks::Task> task;
  const StepCalendar calendar;
  const absl::StatusOr<parallel::Placements> placements;
  optim::DenseOptimizer dense;
  sparse::StepPushes pushes;  // of the current step
  sparse::StepOptimizer optimizer;
  // Null before Connect. `array_holders` is null where the rank computes on the host.
  std::unique_ptr<parallel::HolderGroups> holders, array_holders;
  std::unique_ptr<parallel::GradientSync> sync;
  std::vector<optim::LogicalParameter> whole_model;  // the dense parameters of all stages
  DType compute = DType::F32;                        // of the training steps

  RunState state;
  StopVote stop_vote;
  DivergenceGuard divergence;
};

}  // namespace tandem::loop
