#include "trainer/loop/train_loop.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/base/clock.h"
#include "kernels/base/status_macros.h"
#include "trainer/autograd/engine.h"
#include "trainer/checkpoint/writer.h"
#include "trainer/loop/job_options.h"
#include "trainer/loop/step_loader.h"
#include "trainer/parallel/ddp.h"
#include "trainer/remote/dist_autograd.h"
#include "trainer/remote/dist_optimizer.h"

namespace tandem::loop {

namespace {

// What a summed loss is divided by, once. A batch without targets has a loss of 0.
double NumTargets(const StepInput& input) { return static_cast<double>(std::max<int64_t>(1, input.global_targets)); }

class Replica {
 public:
  Replica(const Job& job, const SequenceData& data, const ReplicaEnvironment& environment)
      : job_(job),
        environment_(environment),
        pool_(job.runtime().threads()),
        stream_(&pool_),
        parameters_(job.seed(), DType::F32),
        items_(environment.client, /*table=*/1, job.tables(0).dim()),
        task_(job, &data, parameters_, &items_, environment.group),
        dense_(DenseOptionsOf(job), &parameters_),
        total_steps_(TotalSteps(job, task_.steps_per_epoch())),
        optimizer_(DistOptionsOf(job, total_steps_), &dense_, environment.client) {}

  absl::StatusOr<RunSummary> Run();

 private:
  struct PendingStep {
    std::unique_ptr<StepInput> input;
    std::unique_ptr<remote::PulledRows> rows;
  };

  absl::Status Prepare();
  absl::Status TrainStep(int64_t step);
  absl::Status ForwardBackward(Context& context, remote::DistAutogradContext& autograd, StepRecord& record);
  absl::Status Commit(Context& context, remote::DistAutogradContext& autograd, bool want_norm, StepRecord& record);
  void Count(int64_t samples, int64_t tokens, double seconds, StepRecord& record);
  absl::Status EndEpoch(int64_t step, int64_t epoch, bool last);
  // Collective. REQUIRES: the last commit is applied.
  absl::Status SaveCheckpoint(int64_t step, int64_t epoch);
  // The next step's input, with its rows on their way.
  PendingStep PullNext(int64_t step);
  absl::StatusOr<RunSummary> Summarise(int64_t steps);
  absl::Time Deadline() const { return absl::Now() + absl::Seconds(job_.runtime().timeout_seconds()); }

  const Job& job_;
  const ReplicaEnvironment& environment_;
  ThreadPool pool_;
  Stream stream_;
  ParameterSet parameters_;
  remote::RemoteEmbedding items_;
  SequenceRecTask task_;
  optim::DenseOptimizer dense_;
  const int64_t total_steps_;
  remote::DistOptimizer optimizer_;
  std::unique_ptr<parallel::Ddp> ddp_;
  std::unique_ptr<StepLoader> loader_;
  PendingStep pending_;  // the next step; destroyed after an abort, so that its pull cannot hold up a failed run

  Stopwatch run_watch_;
  double train_seconds_ = 0, epoch_loss_ = 0;
  int64_t samples_ = 0, tokens_ = 0, epoch_steps_ = 0, skipped_ = 0;
  double best_selection_ = 0;
  int64_t best_epoch_ = 0, epochs_done_ = 0, evaluations_since_best_ = 0;
  bool stop_ = false;
  std::map<std::string, double> best_metrics_;
};

absl::Status Replica::Prepare() {
  RETURN_IF_ERROR(environment_.client->CreateTables(TableSpecsOf(job_), absl::Seconds(job_.runtime().timeout_seconds())));
  ASSIGN_OR_RETURN(ddp_, parallel::Ddp::Create(&parameters_, environment_.group, &stream_, {}));
  return ddp_->VerifyEqual(absl::Uint128Low64(dense_.Hash()), "initial weights", Deadline());
}

Replica::PendingStep Replica::PullNext(int64_t step) {
  PendingStep pending{loader_->Next(), nullptr};
  if (pending.input) pending.rows = items_.Pull(static_cast<uint64_t>(step), /*create=*/true, pending.input->ids);
  return pending;
}

absl::Status Replica::ForwardBackward(Context& context, remote::DistAutogradContext& autograd, StepRecord& record) {
  Stopwatch watch;
  const int num_parts = job_.train().accumulate();
  const Variable rows = items_.Enter(context, *pending_.rows, autograd, num_parts - 1);
  record.pull_ms = watch.Lap() * 1e3;
  if (context.failed()) return context.status();
  ddp_->BeginStep(num_parts);
  double loss_sum = 0;
  for (int part = 0; part < num_parts; ++part) {
    ddp_->BeginPass(part);
    const Variable loss = task_.LossSum(context, *pending_.input, part, rows);
    loss_sum += loss.value().At(0);
    Backward(context, loss);  // buckets are all-reduced and row gradients pushed on the way
  }
  record.compute_ms = watch.Lap() * 1e3;
  ddp_->Finish(context);
  if (context.failed()) return context.status();
  comm::ProcessGroup& group = *environment_.group;
  const comm::CollectiveArgs args{.stream = &stream_, .tag = StableHash("loss")};
  RETURN_IF_ERROR(group.Await(group.AllReduce(DenseView(&loss_sum, Shape{1}), args), context.deadline()));
  record.collective_ms = watch.Lap() * 1e3;
  record.loss = loss_sum / NumTargets(*pending_.input);
  return absl::OkStatus();
}

absl::Status Replica::Commit(Context& context, remote::DistAutogradContext& autograd, bool want_norm,
                             StepRecord& record) {
  Stopwatch watch;
  ASSIGN_OR_RETURN(const remote::DistOptimizer::StepResult result,
                   optimizer_.Step(context, autograd, NumTargets(*pending_.input), want_norm));
  record.push_ms = result.push_seconds * 1e3;
  record.compute_ms += (watch.Seconds() - result.push_seconds) * 1e3;
  record.learning_rate = result.learning_rate;
  record.grad_norm = result.grad_norm;
  skipped_ += result.skipped;
  return absl::OkStatus();
}

absl::Status Replica::TrainStep(int64_t step) {
  RETURN_IF_ERROR(environment_.interrupted ? environment_.interrupted() : absl::OkStatus());
  Stopwatch watch;
  const bool log = step % job_.train().log_every_steps() == 0 || step == total_steps_;
  StepRecord record{.step = step, .epoch = (step - 1) / task_.steps_per_epoch() + 1};
  Context context({.stream = &stream_,
                   .seed = job_.seed(),
                   .step = static_cast<uint64_t>(step),
                   .training = true,
                   .deadline = Deadline()});
  remote::DistAutogradContext autograd(environment_.client, context.step(),
                                       static_cast<uint32_t>(environment_.group->rank()));
  absl::Status status = ForwardBackward(context, autograd, record);
  if (status.ok()) status = Commit(context, autograd, /*want_norm=*/log, record);
  if (!status.ok()) {
    environment_.client->Abort(status);  // completes the pushes that `autograd` still waits for
    return status;
  }
  const int64_t samples = pending_.input->global_samples, tokens = pending_.input->global_tokens;
  // The next rows' pull follows the commit to the servers and waits there for it to be applied.
  pending_ = step < total_steps_ ? PullNext(step + 1) : PendingStep();
  Count(samples, tokens, watch.Seconds(), record);
  if (log && environment_.output != nullptr) environment_.output->Step(record, total_steps_);
  return absl::OkStatus();
}

void Replica::Count(int64_t samples, int64_t tokens, double seconds, StepRecord& record) {
  record.samples_per_second = static_cast<double>(samples) / seconds;
  record.tokens_per_second = static_cast<double>(tokens) / seconds;
  samples_ += samples;
  tokens_ += tokens;
  train_seconds_ += seconds;
  epoch_loss_ += record.loss;
  ++epoch_steps_;
}

absl::Status Replica::EndEpoch(int64_t step, int64_t epoch, bool last) {
  const double train_loss = epoch_steps_ > 0 ? epoch_loss_ / static_cast<double>(epoch_steps_) : 0;
  epoch_loss_ = 0;
  epoch_steps_ = 0;
  if (!last && epoch % job_.train().eval_every_epochs() != 0) return absl::OkStatus();
  RETURN_IF_ERROR(optimizer_.AwaitCommit(Deadline()));
  ASSIGN_OR_RETURN(const Evaluation valid, task_.Evaluate(EvaluationSplit::VALID, stream_, Deadline()));
  EvaluationRecord record{.step = step, .epoch = epoch, .train_loss = train_loss, .best = false, .metrics = {}};
  for (const auto& [name, value] : valid.metrics) record.metrics["valid/" + name] = value;
  record.best = best_epoch_ == 0 || valid.selection > best_selection_;
  if (record.best) {
    // Tested here and now, so that the test figures are those of the best epoch's weights without keeping a copy.
    ASSIGN_OR_RETURN(const Evaluation test, task_.Evaluate(EvaluationSplit::TEST, stream_, Deadline()));
    best_selection_ = valid.selection;
    best_epoch_ = epoch;
    evaluations_since_best_ = 0;
    best_metrics_ = record.metrics;
    for (const auto& [name, value] : test.metrics) best_metrics_["test/" + name] = value;
  } else if (epoch > job_.train().min_epochs()) {
    ++evaluations_since_best_;
  }
  stop_ = job_.train().patience() > 0 && evaluations_since_best_ >= job_.train().patience();
  if (environment_.output != nullptr) environment_.output->Evaluated(record);
  return record.best ? SaveCheckpoint(step, epoch) : absl::OkStatus();
}

absl::Status Replica::SaveCheckpoint(int64_t step, int64_t epoch) {
  if (environment_.output != nullptr) {
    checkpoint::WriteArgs args{.folder = environment_.output->folder() + "/checkpoints",
                               .manifest = {},
                               .parameters = &parameters_,
                               .optimizer = &dense_,
                               .client = environment_.client,
                               .keep = job_.checkpoint().keep(),
                               .deadline = Deadline()};
    *args.manifest.mutable_job() = job_;
    args.manifest.set_step(static_cast<uint64_t>(step));
    args.manifest.set_epoch(static_cast<uint64_t>(epoch));
    args.manifest.set_samples_consumed(static_cast<uint64_t>(samples_));
    args.manifest.set_seed(job_.seed());
    args.manifest.set_best_epoch(static_cast<uint64_t>(best_epoch_));
    args.manifest.set_best_selection(best_selection_);
    args.manifest.mutable_best_metrics()->insert(best_metrics_.begin(), best_metrics_.end());
    args.manifest.set_evaluations_since_best(static_cast<uint64_t>(evaluations_since_best_));
    const std::vector<TableSpec> specs = TableSpecsOf(job_);
    args.manifest.mutable_tables()->Add(specs.begin(), specs.end());
    RETURN_IF_ERROR(checkpoint::WriteCheckpoint(args));
  }
  // No server applies the next step without rank 0's commit; waiting here keeps the writing out of that step's deadline.
  comm::ProcessGroup& group = *environment_.group;
  return group.Await(group.Barrier({.stream = &stream_, .tag = StableHash("checkpoint")}), Deadline());
}

absl::StatusOr<RunSummary> Replica::Summarise(int64_t steps) {
  RETURN_IF_ERROR(optimizer_.AwaitCommit(Deadline()));
  const absl::uint128 dense_hash = dense_.Hash();
  RETURN_IF_ERROR(ddp_->VerifyEqual(absl::Uint128Low64(dense_hash), "weights", Deadline()));
  RunSummary summary;
  summary.job = job_.name();
  summary.status = "completed";
  summary.seed = job_.seed();
  summary.steps = steps;
  summary.epochs = epochs_done_;
  summary.best_epoch = best_epoch_;
  summary.seconds = run_watch_.Seconds();
  summary.layout = {environment_.num_servers, environment_.group->size()};
  summary.metrics = best_metrics_;
  summary.samples_per_second = static_cast<double>(samples_) / std::max(1e-9, train_seconds_);
  summary.tokens_per_second = static_cast<double>(tokens_) / std::max(1e-9, train_seconds_);
  summary.dense_parameters = static_cast<uint64_t>(parameters_.num_elements());
  if (environment_.output != nullptr) {
    ASSIGN_OR_RETURN(const ps::HashResult sparse, environment_.client->Hash().Wait(Deadline()));
    summary.params_hash = dense_hash + sparse.hash;
    summary.sparse_rows = sparse.num_rows;
    if (skipped_ > 0) {
      environment_.output->Note(absl::StrCat(skipped_, " steps were skipped: their gradients were not finite"));
    }
    RETURN_IF_ERROR(environment_.output->Finish(summary));
  }
  // Nobody leaves, taking its part of the job down, before rank 0 has read everything.
  comm::ProcessGroup& group = *environment_.group;
  RETURN_IF_ERROR(group.Await(group.Barrier({.stream = &stream_, .tag = StableHash("end")}), Deadline()));
  return summary;
}

absl::StatusOr<RunSummary> Replica::Run() {
  RETURN_IF_ERROR(Prepare());
  loader_ = std::make_unique<StepLoader>(&task_, 1, total_steps_);
  pending_ = PullNext(1);
  int64_t step = 1;
  for (; step <= total_steps_ && !stop_; ++step) {
    RETURN_IF_ERROR(TrainStep(step));
    const int64_t per_epoch = task_.steps_per_epoch();
    if (step % per_epoch == 0) ++epochs_done_;
    if (step % per_epoch == 0 || step == total_steps_) {
      RETURN_IF_ERROR(EndEpoch(step, (step - 1) / per_epoch + 1, step == total_steps_));
    }
  }
  return Summarise(step - 1);
}

}  // namespace

absl::StatusOr<RunSummary> RunReplica(const Job& job, const SequenceData& data, const ReplicaEnvironment& environment) {
  // The replica outlives the abort below: what it still waits for completes then.
  Replica replica(job, data, environment);
  absl::StatusOr<RunSummary> summary = replica.Run();
  if (!summary.ok()) {
    environment.group->Abort(summary.status());
    environment.client->Abort(summary.status());
  }
  return summary;
}

}  // namespace tandem::loop
