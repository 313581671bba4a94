#include "trainer/loop/train_loop.h"

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "trainer/loop/batches.h"
#include "trainer/loop/checkpointing.h"
#include "trainer/loop/evaluations.h"
#include "trainer/loop/replica/activation_bytes.h"
#include "trainer/loop/replica/make_gradient_sync.h"
#include "trainer/loop/replica/replica.h"
#include "trainer/loop/run_observers.h"
#include "trainer/loop/run_summary.h"
#include "trainer/loop/step.h"
#include "trainer/loop/step_passes.h"

namespace tandem::loop {

namespace {

// Brings the replica, its servers and its output to where the run begins or goes on. Collective.
absl::Status Prepare(Replica& replica) {
  RETURN_IF_ERROR(replica.Connect());
  RETURN_IF_ERROR(RestoreOrInitialize(replica));
  RETURN_IF_ERROR(replica.SetPrecision());
  RETURN_IF_ERROR(CheckPipelineMemory(replica));
  RETURN_IF_ERROR(replica.VerifiedHash("initial weights").status());
  if (replica.output == nullptr) return absl::OkStatus();
  // Begins the output last, because nothing can refuse the run any more.
  return replica.environment.resume != nullptr ? replica.output->BeginAfter(replica.state.step())
                                               : replica.output->BeginAnew();
}

// True if steps may be launched as graphs. Says why not if a user would expect them.
bool MayRecord(const Replica& replica) {
  // Tables' rows differ in number in every step, so no graph fits them.
  if (!replica.stream.on_cuda() || replica.tables != nullptr ||
      !replica.job.runtime().cuda_graphs())
    return false;
  const char* why_not = nullptr;
  if (replica.tensor_group != nullptr)
    why_not = "with parallel.tp, layers wait for other ranks";
  else if (replica.mesh.shape().pp > 1)
    why_not = "with parallel.pp, stages wait for other ranks";
  else if (ZeroStageOf(replica.job) >= 2)
    why_not = "from parallel.zero 2 on, every step takes new memory";
  if (why_not != nullptr) replica.Note(absl::StrCat("steps run without CUDA graphs: ", why_not));
  return why_not == nullptr;
}

StepPassesOptions PassesOptionsOf(Replica* replica) {
  return {.task = replica->task.get(),
          .sync = replica->sync.get(),
          .pipeline = &replica->pipeline,
          .may_record = MayRecord(*replica),
          .note = [replica](const std::string& text) { replica->Note(text); }};
}

// Trains a prepared replica: its steps, and what comes between them.
class Run {
 public:
  // REQUIRES: the replica is prepared.
  explicit Run(Replica* replica)
      : replica_(*replica),
        observers_(replica),
        passes_(PassesOptionsOf(replica)),
        batches_(replica->task.get(), replica->tables.get(), replica->state.step() + 1,
                 replica->calendar.total_steps()),
        step_(replica, &batches_, &passes_, &observers_.all),
        evaluations_(replica, &passes_) {}

  absl::StatusOr<report::RunSummary> ToItsEnd();

 private:
  // Asks for the first steps' weights and rows.
  void StartPulls();
  absl::Status TrainStep(int64_t step);
  // Does what is due after step `step`.
  absl::Status EvaluateAndSave(int64_t step);
  // Makes the evaluation that the interrupted run still owed.
  absl::Status MakeUpEvaluation();
  // True if there is no further step to train.
  bool HasAllSteps() const {
    return replica_.state.step() >= replica_.calendar.total_steps() ||
           replica_.state.patience_ended();
  }

  Replica& replica_;
  RunObservers observers_;
  StepPasses passes_;
  Batches batches_;
  Step step_;
  Evaluations evaluations_;
};

absl::StatusOr<report::RunSummary> Run::ToItsEnd() {
  StartPulls();
  RETURN_IF_ERROR(MakeUpEvaluation());
  while (!HasAllSteps() && !replica_.stop_vote.stopping()) {
    const int64_t step = replica_.state.step() + 1;
    RETURN_IF_ERROR(TrainStep(step));
    RETURN_IF_ERROR(EvaluateAndSave(step));
  }
  // A signal after the last evaluation stopped nothing.
  const bool complete = !evaluations_.Owed() && HasAllSteps();
  return Summarize(replica_, observers_, passes_.times(),
                   complete ? report::kCompleted : report::kStopped);
}

void Run::StartPulls() {
  replica_.sync->PullWeights(static_cast<uint64_t>(replica_.state.step() + 1));
  const ParameterServer& ps = replica_.job.ps();
  const int32_t under_way = replica_.tables && ps.consistency() == PERMIT ? ps.staleness() : 1;
  for (int32_t i = 0; i < under_way; ++i) batches_.PullNext();
}

absl::Status Run::TrainStep(int64_t step) {
  report::StepRecord record{.step = step,
                            .total_steps = replica_.calendar.total_steps(),
                            .epoch = replica_.calendar.EpochOf(step),
                            .logged = replica_.calendar.IsLogged(step)};
  RETURN_IF_ERROR(observers_.all.BeforeStep(record, replica_.Deadline()));
  RETURN_IF_ERROR(step_.Run(record));
  replica_.state.Count(step, record.samples, record.tokens, record.loss, record.skipped);
  return observers_.all.AfterStep(record, replica_.Deadline());
}

absl::Status Run::EvaluateAndSave(int64_t step) {
  ASSIGN_OR_RETURN(const bool best, evaluations_.EvaluateIfDue(step));
  const bool save = best || replica_.stop_vote.stopping() || replica_.calendar.CheckpointDue(step);
  return save ? SaveCheckpoint(replica_, batches_) : absl::OkStatus();
}

absl::Status Run::MakeUpEvaluation() {
  if (!evaluations_.Owed()) return absl::OkStatus();
  // An earlier resumed run may have made this evaluation, left its record and then been killed.
  if (replica_.output != nullptr)
    RETURN_IF_ERROR(replica_.output->TakeBackEvaluation(replica_.state.step()));
  return EvaluateAndSave(replica_.state.step());
}

}  // namespace

absl::StatusOr<report::RunSummary> RunReplica(const Job& job, const tasks::JobData& data,
                                              const ReplicaEnvironment& environment) {
  // Declared here so that all outlive the abort below, which completes their pending calls.
  Meshes meshes;
  std::optional<Replica> replica;
  std::optional<Run> run;
  const auto train = [&]() -> absl::StatusOr<report::RunSummary> {
    ASSIGN_OR_RETURN(meshes, MakeMeshes(job, data, environment));
    replica.emplace(job, data, environment, meshes);
    RETURN_IF_ERROR(Prepare(*replica));
    if (environment.on_ready) RETURN_IF_ERROR(environment.on_ready());
    return run.emplace(&*replica).ToItsEnd();
  };
  absl::StatusOr<report::RunSummary> summary = train();
  if (!summary.ok()) {
    environment.group->Abort(summary.status());
    if (environment.device_group != nullptr) environment.device_group->Abort(summary.status());
    environment.clients.rows->Abort(summary.status());
  }
  return summary;
}

}  // namespace tandem::loop
