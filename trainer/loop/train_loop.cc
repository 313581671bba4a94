#include "trainer/loop/train_loop.h"

#include <algorithm>
#include <cmath>
#include <deque>

#include "absl/strings/str_cat.h"
#include "kernels/base/clock.h"
#include "kernels/base/status_macros.h"
#include "kernels/memory/kernel_span.h"
#include "trainer/checkpoint/writer.h"
#include "trainer/job/job_options.h"
#include "trainer/job/parameter_placement.h"
#include "trainer/loop/divergence.h"
#include "trainer/loop/make_gradient_sync.h"
#include "trainer/loop/precision.h"
#include "trainer/loop/run_state.h"
#include "trainer/loop/same_data.h"
#include "trainer/loop/step_loader.h"
#include "trainer/loop/step_passes.h"
#include "trainer/parallel/data_parallel/ddp.h"
#include "trainer/report/run_trace.h"
#include "trainer/report/server_watch.h"
#include "trainer/report/step_clock.h"
#include "trainer/report/trace_file.h"
#include "trainer/sparse/step_optimizer.h"
#include "trainer/sparse/step_pushes.h"
#include "trainer/tasks/embedding_table.h"

namespace tandem::loop {

namespace {

// Extra wait, so that a collective's own error, which explains more, comes first.
constexpr absl::Duration kMargin = absl::Seconds(1);

// Returns the divisor of the summed loss. At least 1: a batch without targets has a loss of 0.
double NumTargets(const tasks::StepInput& input) {
  return static_cast<double>(std::max<int64_t>(1, input.global_targets));
}

class Replica {
 public:
  Replica(const Job& job, const tasks::JobData& data, const ReplicaEnvironment& environment)
      : job_(job),
        data_(data),
        environment_(environment),
        pool_(job.runtime().threads()),
        stream_(&pool_, environment.device),
        parameters_(job.seed(), DType::F32, &stream_),
        table_(tasks::MakeEmbeddingTable(job, environment.clients.rows, &stream_)),
        task_(data.MakeTask(
            job, {.parameters = &parameters_, .table = table_.get(), .group = environment.group})),
        placements_(job::PlacementsOf(job, parameters_)),
        dense_(job::DenseOptionsOf(job), &parameters_,
               PlacedAs(parameters_, placements_.value_or(parallel::Placements()),
                        parallel::Placement::REPLICATED)),
        pushes_(environment.clients.rows, environment.clients.pooled,
                static_cast<uint32_t>(environment.group->rank())),
        total_steps_(job::TotalSteps(job, task_->steps_per_epoch())),
        optimizer_(job::DistOptionsOf(job, total_steps_), &dense_, environment.clients.rows),
        state_(job.train()),
        servers_(environment.clients.tables) {}

  absl::StatusOr<report::RunSummary> Run();

 private:
  struct PendingStep {
    std::unique_ptr<tasks::StepInput> input;
    std::unique_ptr<sparse::PulledRows> rows;  // null without a table
  };

  absl::Status Prepare();
  // Gives owners elsewhere their first state: the checkpoint's or, if null, the initial values.
  // Collective.
  absl::Status FillOwners(const optim::DenseState* restored, absl::Duration timeout);
  absl::Status Restore(const checkpoint::Checkpoint& saved);
  absl::Status SetPrecision();
  absl::Status TrainStep(int64_t step);
  absl::Status ForwardBackward(Context& context, report::StepRecord& record);
  // Sums the loss over replicas. Learns whether a replica is to stop or kept gradients back. A step
  // that is not finite ends the run or is marked as skipped, by all replicas alike.
  absl::Status ShareLoss(double loss_sum, absl::Time deadline, report::StepRecord& record);
  // Applies train.non_finite to a step in which `what` is not finite. Returns the error that ends
  // the run, or Ok if the step is to be skipped.
  absl::Status NotFinite(int64_t step, const std::string& what);
  // Returns the error that ends the run after step `step`, whatever train.non_finite says.
  absl::Status Ended(int64_t step, const std::string& what) const;
  // Returns Ok if all weights and optimizer slots that this replica holds are finite.
  absl::Status CheckWeights(int64_t step);
  absl::Status Commit(Context& context, bool want_norm, report::StepRecord& record);
  // Like AwaitCommits. Also brings parameters with an owner elsewhere up to date with the commits.
  absl::Status AwaitWeights();
  // Learns whether any replica is to stop. Collective.
  absl::StatusOr<bool> StopAgreed();
  bool EvaluationDue(int64_t step) const;
  // True if an evaluation or a checkpoint follows the step in progress.
  bool TablesAreReadAfter(int64_t step) const {
    return stopping_ || EvaluationDue(step) || CheckpointDue(step);
  }
  bool CheckpointDue(int64_t step) const {
    const int64_t every = job_.checkpoint().every_steps();
    return every > 0 && step % every == 0;
  }
  // True if the last step's evaluation was due, but a stop came before its end.
  bool EvaluationOwed() const {
    return EvaluationDue(state_.step()) && state_.has_steps_since_mean();
  }
  // Evaluates if due. Sets *best if the evaluation is the best so far. A stop leaves everything
  // unchanged.
  absl::Status EvaluateIfDue(int64_t step, bool* best);
  // Runs after every step.
  absl::Status EvaluateAndSave(int64_t step);
  // Makes the evaluation that the interrupted run still owed.
  absl::Status MakeUpEvaluation();
  // Collective.
  absl::Status SaveCheckpoint();
  // Adds the state of parameters whose owners are elsewhere, as the owners have it.
  absl::Status ReadElsewhere(optim::DenseState* state, absl::Time deadline) const;
  void FillTimes(report::StepRecord& record);
  // Takes the next step not yet in flight, if any, and starts the pull of its rows.
  void PullNext();
  // Waits until the last commit of every replica is applied. Collective except in BSP, where the
  // own commit implies all others.
  absl::Status AwaitCommits();
  absl::StatusOr<report::RunSummary> Summarise(const std::string& status);
  bool IsBsp() const { return job_.ps().consistency() == BSP; }
  bool EpochEnds(int64_t step) const {
    return step % task_->steps_per_epoch() == 0 || step == total_steps_;
  }
  int64_t EpochOf(int64_t step) const { return (step - 1) / task_->steps_per_epoch() + 1; }
  absl::Duration Timeout() const { return absl::Seconds(job_.runtime().timeout_seconds()); }
  absl::Time Deadline() const { return absl::Now() + Timeout(); }
  // The time limit of rank 0's checkpoint, which may take longer than a wait for a peer.
  absl::Duration CheckpointTimeout() const {
    return absl::Seconds(job_.checkpoint().timeout_seconds());
  }
  absl::Status Barrier(const char* name, absl::Duration timeout);
  std::unique_ptr<StepPasses> MakePasses();
  std::unique_ptr<report::RunTrace> MakeTrace(int64_t first_step);
  void TakeNote(const absl::Status& trace);

  const Job& job_;
  const tasks::JobData& data_;
  const ReplicaEnvironment& environment_;
  ThreadPool pool_;
  Stream stream_;
  ParameterSet parameters_;
  // Null: the embedding is a dense parameter.
  const std::unique_ptr<sparse::RemoteEmbedding> table_;
  const std::unique_ptr<tasks::Task> task_;
  const absl::StatusOr<parallel::Placements> placements_;
  optim::DenseOptimizer dense_;
  sparse::StepPushes pushes_;  // of the current step
  const int64_t total_steps_;
  sparse::StepOptimizer optimizer_;
  RunState state_;
  DType compute_ = DType::F32;  // of the training steps
  double peak_flops_ = 0;       // peak FLOP/s at compute_, if the device's peak is known
  report::StepClock clock_{&stream_};
  std::unique_ptr<parallel::GradientSync> sync_;
  std::unique_ptr<StepPasses> passes_;
  std::unique_ptr<report::RunTrace> trace_;
  std::unique_ptr<StepLoader> loader_;
  // The next steps, in order. Destroyed after an abort, so that their pulls cannot delay the end of
  // a failed run.
  std::deque<PendingStep> pending_;
  int64_t last_pending_ = 0;     // number of the last pending step
  report::ServerWatch servers_;  // rank 0 only

  Stopwatch run_watch_;
  double train_seconds_ = 0;
  int64_t samples_ = 0, tokens_ = 0, skipped_ = 0;  // counted over this process's steps
  int64_t saved_step_ = 0;                          // of the last checkpoint; 0: none
  bool stopping_ = false;
};

absl::Status Replica::Prepare() {
  RETURN_IF_ERROR(placements_.status());
  RETURN_IF_ERROR(VerifySameData(data_, *environment_.group, Deadline()));
  std::vector<TableSpec> tables = job::TableSpecsOf(job_);
  const std::vector<TableSpec> dense_tables = job::DenseTableSpecsOf(job_);
  tables.insert(tables.end(), dense_tables.begin(), dense_tables.end());
  RETURN_IF_ERROR(environment_.clients.tables->CreateTables(tables, Timeout()));
  comm::ProcessGroup* const gradients =
      environment_.device_group != nullptr ? environment_.device_group : environment_.group;
  ASSIGN_OR_RETURN(sync_, MakeGradientSync(job_, {.parameters = &parameters_,
                                                  .placements = *placements_,
                                                  .group = gradients,
                                                  .rows = environment_.clients.rows,
                                                  .tables = environment_.clients.tables,
                                                  .pushes = &pushes_,
                                                  .stream = &stream_}));
  passes_ = MakePasses();
  RETURN_IF_ERROR(environment_.resume != nullptr ? Restore(*environment_.resume)
                                                 : FillOwners(nullptr, Timeout()));
  RETURN_IF_ERROR(SetPrecision());
  const absl::uint128 dense_hash = dense_.State().Hash();
  RETURN_IF_ERROR(stream_.status());  // a failed stream makes the hash meaningless
  RETURN_IF_ERROR(parallel::VerifyEqual(*environment_.group, absl::Uint128Low64(dense_hash),
                                        "initial weights", Deadline()));
  if (environment_.output == nullptr) return absl::OkStatus();
  // Begins the output last, because nothing can refuse the run any more.
  return environment_.resume != nullptr ? environment_.output->BeginAfter(state_.step())
                                        : environment_.output->BeginAnew();
}

absl::Status Replica::SetPrecision() {
  Precision precision;
  if (environment_.compute) {
    precision.compute = *environment_.compute;
  } else {
    const CheckpointManifest* resumed =
        environment_.resume != nullptr ? &environment_.resume->manifest : nullptr;
    ASSIGN_OR_RETURN(precision, ChoosePrecision(job_, task_->Bf16Product(), resumed, stream_,
                                                *environment_.group, Deadline()));
  }
  compute_ = precision.compute;
  peak_flops_ = PeakFlops(stream_.device(), compute_);
  if (compute_ == DType::BF16) parameters_.MakeShadows(stream_);
  if (environment_.output != nullptr && !precision.reason.empty())
    environment_.output->Note(precision.reason);
  return absl::OkStatus();
}

absl::Status Replica::Restore(const checkpoint::Checkpoint& saved) {
  optim::DenseState state = dense_.State();
  sync_->AddEntries(&state);
  RETURN_IF_ERROR(checkpoint::LoadState(saved, state));
  state_.Restore(saved.manifest);
  saved_step_ = state_.step();
  const absl::Time deadline = absl::Now() + CheckpointTimeout();
  if (environment_.group->rank() == 0)
    RETURN_IF_ERROR(checkpoint::LoadRows(saved, *environment_.clients.tables, deadline));
  return FillOwners(&state, CheckpointTimeout());
}

absl::Status Replica::FillOwners(const optim::DenseState* restored, absl::Duration timeout) {
  if (environment_.group->rank() == 0)
    RETURN_IF_ERROR(sync_->WriteState(restored, absl::Now() + timeout));
  return Barrier("assigned", timeout);  // no replica pulls before rank 0 has written
}

std::unique_ptr<StepPasses> Replica::MakePasses() {
  return std::make_unique<StepPasses>(StepPassesOptions{
      .task = task_.get(),
      .sync = sync_.get(),
      .num_parts = job_.train().accumulate(),
      // A table's rows differ in number in every step, so no graph fits them.
      .may_record = stream_.on_cuda() && table_ == nullptr && job_.runtime().cuda_graphs(),
      .note = [this](const std::string& text) {
        if (environment_.output != nullptr) environment_.output->Note(text);
      }});
}

std::unique_ptr<report::RunTrace> Replica::MakeTrace(int64_t first_step) {
  report::RunTraceOptions options{.first_step = first_step + job_.trace().first_step() - 1,
                                  .num_steps = job_.trace().steps(),
                                  .stream = &stream_,
                                  .group = environment_.group,
                                  .tables = environment_.clients.tables,
                                  .master = environment_.master};
  if (environment_.on_trace) {
    options.deliver = [this](const std::vector<RoleTrace>& traces) {
      environment_.on_trace(traces);
      return absl::OkStatus();
    };
  } else if (environment_.output != nullptr) {
    options.deliver = [this](std::vector<RoleTrace> traces) {
      return report::WriteTraceFile(environment_.output->folder() + "/trace.json",
                                    std::move(traces));
    };
  }
  return std::make_unique<report::RunTrace>(options);
}

// Turns an incomplete trace into a note, because a trace must not end the run.
void Replica::TakeNote(const absl::Status& trace) {
  if (trace.ok() || environment_.output == nullptr) return;
  environment_.output->Note(std::string(trace.message()));
}

absl::Status Replica::Barrier(const char* name, absl::Duration timeout) {
  comm::ProcessGroup& group = *environment_.group;
  const comm::CollectiveArgs args{.stream = &stream_, .tag = StableHash(name), .timeout = timeout};
  return group.Await(group.Barrier(args), absl::Now() + timeout + kMargin);
}

void Replica::PullNext() {
  PendingStep next{loader_->Next(), nullptr};
  if (!next.input) return;
  ++last_pending_;
  if (table_)
    next.rows =
        table_->Pull(static_cast<uint64_t>(last_pending_), /*create=*/true, next.input->ids);
  pending_.push_back(std::move(next));
}

absl::Status Replica::AwaitCommits() {
  RETURN_IF_ERROR(optimizer_.AwaitCommit(Deadline()));
  return IsBsp() ? absl::OkStatus() : Barrier("commits", Timeout());
}

absl::Status Replica::ForwardBackward(Context& context, report::StepRecord& record) {
  Variable rows;
  if (table_)
    rows = table_->Enter(context, *pending_.front().rows, pushes_, job_.train().accumulate() - 1);
  context.Fail(sync_->AwaitWeights(context.deadline()));
  clock_.Mark(report::StepClock::PULL);
  if (context.failed()) return context.status();
  const std::vector<Tensor> losses = passes_->Run(context, *pending_.front().input, rows);
  record.launched_graph = passes_->launched_graph();
  clock_.Mark(report::StepClock::COMPUTE);
  // Read once all work is submitted, so that the host never waits for a device in between.
  double loss_sum = 0;
  for (const Tensor& loss : losses) loss_sum += loss.ToHost(stream_).At(0);
  sync_->Finish(context);
  context.Fail(stream_.status());
  if (context.failed()) return context.status();
  RETURN_IF_ERROR(ShareLoss(loss_sum, context.deadline(), record));
  clock_.Mark(report::StepClock::COLLECTIVE);
  return absl::OkStatus();
}

absl::Status Replica::ShareLoss(double loss_sum, absl::Time deadline, report::StepRecord& record) {
  const bool stop = environment_.stop_requested && environment_.stop_requested();
  const std::optional<std::string> mine = sync_->KeptBack();
  double shared[3] = {loss_sum, stop ? 1.0 : 0.0, mine ? 1.0 : 0.0};
  comm::ProcessGroup& group = *environment_.group;
  const comm::CollectiveArgs args{.stream = &stream_, .tag = StableHash("loss")};
  RETURN_IF_ERROR(group.Await(group.AllReduce(DenseView(shared, Shape{3}), args), deadline));
  record.loss = shared[0] / NumTargets(*pending_.front().input);
  stopping_ = shared[1] > 0;
  const bool kept_back = shared[2] > 0;
  record.skipped = kept_back || !std::isfinite(record.loss);
  if (!record.skipped) return absl::OkStatus();
  if (!std::isfinite(record.loss))
    return NotFinite(record.step, absl::StrCat("loss is ", NonFiniteText(record.loss)));
  return NotFinite(
      record.step,
      absl::StrCat("the gradient of ", mine.value_or("a served parameter"), " is not finite"));
}

absl::Status Replica::NotFinite(int64_t step, const std::string& what) {
  const bool stops = job_.train().non_finite() == Train::STOP;
  if (!stops && skipped_ == 0 && environment_.output != nullptr) {
    environment_.output->Note(
        absl::StrCat("step ", step, " is skipped: ", what, "; later ones are counted"));
  }
  if (!stops) return absl::OkStatus();
  return Diverged({step, what, optimizer_.LearningRate(step), /*may_skip=*/true, saved_step_});
}

absl::Status Replica::Ended(int64_t step, const std::string& what) const {
  return Diverged({step, what, optimizer_.LearningRate(step), /*may_skip=*/false, saved_step_});
}

absl::Status Replica::CheckWeights(int64_t step) {
  const std::string wrong = dense_.FirstNonFinite(stream_);
  RETURN_IF_ERROR(stream_.status());
  return wrong.empty() ? absl::OkStatus()
                       : Ended(step, absl::StrCat("parameter ", wrong, " is not finite"));
}

absl::Status Replica::Commit(Context& context, bool want_norm, report::StepRecord& record) {
  const KernelSpan span(stream_, SpanKind::PHASE, "commit");
  optimizer_.AwaitPushes(context, pushes_);
  clock_.Mark(report::StepClock::PUSH);
  const auto on_non_finite = [&] {
    return NotFinite(
        record.step,
        absl::StrCat("the gradient of ", dense_.FirstNonFiniteGradient(stream_), " is not finite"));
  };
  ASSIGN_OR_RETURN(const sparse::StepOptimizer::StepResult result,
                   optimizer_.Step(context, {.count = NumTargets(*pending_.front().input),
                                             .want_norm = want_norm,
                                             .skip = record.skipped,
                                             .on_non_finite = on_non_finite,
                                             .flush = TablesAreReadAfter(record.step)}));
  clock_.Mark(report::StepClock::COMPUTE);
  record.learning_rate = result.learning_rate;
  record.grad_norm = result.grad_norm;
  record.skipped = result.skipped;
  skipped_ += result.skipped;
  return absl::OkStatus();
}

absl::Status Replica::TrainStep(int64_t step) {
  TakeNote(trace_->BeforeStep(step, Deadline()));
  Stopwatch watch;
  const KernelSpan span(stream_, SpanKind::STEP, "step");
  clock_.Begin();
  const bool log = step % job_.train().log_every_steps() == 0 || step == total_steps_;
  const bool watch_staleness = log && environment_.output != nullptr && !IsBsp();
  if (watch_staleness) servers_.Ask();  // asks early, so that the step need not wait for the answer
  report::StepRecord record{.step = step, .epoch = EpochOf(step)};
  Context context({.stream = &stream_,
                   .seed = job_.seed(),
                   .step = static_cast<uint64_t>(step),
                   .training = true,
                   .compute = compute_,
                   .deadline = Deadline()});
  pushes_.Begin(context.step());
  RETURN_IF_ERROR(ForwardBackward(context, record));
  RETURN_IF_ERROR(Commit(context, /*want_norm=*/log, record));
  const tasks::StepInput& input = *pending_.front().input;
  const int64_t samples = input.global_samples, tokens = input.global_tokens;
  const double flops = input.flops;
  pending_.pop_front();
  // Pulls follow the commit to the servers and wait there until the commit is applied. The last
  // step pulls weights too, for the evaluation and the checkpoint.
  sync_->PullWeights(static_cast<uint64_t>(step) + 1);
  PullNext();
  if (watch_staleness) {
    ASSIGN_OR_RETURN(record.staleness, servers_.TakeStaleness(Deadline()));
  }
  if (log) FillTimes(record);
  const double seconds = watch.Seconds();
  record.mfu = peak_flops_ > 0 ? flops / seconds / peak_flops_ : 0;
  record.samples_per_second = static_cast<double>(samples) / seconds;
  record.tokens_per_second = static_cast<double>(tokens) / seconds;
  samples_ += samples;
  tokens_ += tokens;
  train_seconds_ += seconds;
  state_.Count(step, samples, tokens, record.loss, record.skipped);
  if (log && environment_.output != nullptr)
    RETURN_IF_ERROR(environment_.output->Step(record, total_steps_));
  if (environment_.on_step) environment_.on_step(record);
  return absl::OkStatus();
}

void Replica::FillTimes(report::StepRecord& record) {
  const auto milliseconds = clock_.Milliseconds();
  record.compute_ms = milliseconds[report::StepClock::COMPUTE];
  record.collective_ms = milliseconds[report::StepClock::COLLECTIVE];
  record.pull_ms = milliseconds[report::StepClock::PULL];
  record.push_ms = milliseconds[report::StepClock::PUSH];
}

absl::Status Replica::AwaitWeights() {
  RETURN_IF_ERROR(AwaitCommits());
  RETURN_IF_ERROR(sync_->AwaitWeights(Deadline()));
  if (IsBsp()) return absl::OkStatus();
  sync_->PullWeights(0);  // the pull for the next step may lack other replicas' later commits
  return sync_->AwaitWeights(Deadline());
}

absl::StatusOr<bool> Replica::StopAgreed() {
  double votes = environment_.stop_requested && environment_.stop_requested() ? 1 : 0;
  comm::ProcessGroup& group = *environment_.group;
  const comm::CollectiveArgs args{.stream = &stream_, .tag = StableHash("stop")};
  RETURN_IF_ERROR(group.Await(group.AllReduce(DenseView(&votes, Shape{1}), args), Deadline()));
  stopping_ = votes > 0;
  return stopping_;
}

bool Replica::EvaluationDue(int64_t step) const {
  const Train& train = job_.train();
  if (step == total_steps_) return true;
  if (train.eval_every_steps() > 0) return step % train.eval_every_steps() == 0;
  return EpochEnds(step) && EpochOf(step) % train.eval_every_epochs() == 0;
}

absl::Status Replica::EvaluateIfDue(int64_t step, bool* best) {
  if (!EvaluationDue(step)) {
    if (EpochEnds(step) && job_.train().eval_every_steps() == 0) state_.BeginMean();
    return absl::OkStatus();
  }
  if (stopping_) return absl::OkStatus();  // the resumed run makes the evaluation
  RETURN_IF_ERROR(AwaitWeights());
  RETURN_IF_ERROR(CheckWeights(step));
  passes_->MakeRoom();
  const tasks::EvaluationArgs args{
      .stream = &stream_, .timeout = Timeout(), .stop_agreed = [this] { return StopAgreed(); }};
  ASSIGN_OR_RETURN(const tasks::Evaluation valid,
                   task_->Evaluate(tasks::EvaluationSplit::VALID, args));
  std::string wrong = FirstNonFinite("valid/", valid);
  tasks::Evaluation test;
  if (!stopping_ && wrong.empty() && state_.IsBest(valid.selection)) {
    // Tests now, so that the test metrics belong to the best evaluation's weights without a copy of
    // the weights.
    ASSIGN_OR_RETURN(test, task_->Evaluate(tasks::EvaluationSplit::TEST, args));
    wrong = FirstNonFinite("test/", test);
  }
  RETURN_IF_ERROR(stream_.status());
  if (stopping_) return absl::OkStatus();  // the evaluation was broken off; discard all its results
  if (!wrong.empty() && job_.train().non_finite() == Train::STOP)
    return Ended(step, absl::StrCat("evaluation: ", wrong));
  const int64_t epoch = EpochOf(step);
  report::EvaluationRecord record{.step = step,
                                  .epoch = epoch,
                                  .train_loss = state_.MeanLoss(),
                                  .best = false,
                                  .decides = "valid/" + valid.decides,
                                  .metrics = {}};
  state_.BeginMean();
  for (const auto& [name, value] : valid.metrics) record.metrics["valid/" + name] = value;
  const double selection = wrong.empty() ? valid.selection : std::nan("");
  record.best = *best = state_.Evaluated(epoch, selection, record.metrics);
  std::map<std::string, double> metrics;
  for (const auto& [name, value] : test.metrics) metrics["test/" + name] = value;
  if (*best) state_.AddBestMetrics(metrics);
  if (environment_.output != nullptr) RETURN_IF_ERROR(environment_.output->Evaluated(record));
  return absl::OkStatus();
}

absl::Status Replica::EvaluateAndSave(int64_t step) {
  bool best = false;
  RETURN_IF_ERROR(EvaluateIfDue(step, &best));
  return best || stopping_ || CheckpointDue(step) ? SaveCheckpoint() : absl::OkStatus();
}

absl::Status Replica::MakeUpEvaluation() {
  if (!EvaluationOwed()) return absl::OkStatus();
  // An earlier resumed run may have made this evaluation, left its record and then been killed.
  if (environment_.output != nullptr)
    RETURN_IF_ERROR(environment_.output->TakeBackEvaluation(state_.step()));
  return EvaluateAndSave(state_.step());
}

absl::Status Replica::SaveCheckpoint() {
  RETURN_IF_ERROR(optimizer_.AwaitCommit(Deadline()));
  // No server answers a pull while writing. So every replica first receives the next steps' weights
  // and rows. The barrier also proves that every replica's commits are applied.
  RETURN_IF_ERROR(sync_->AwaitWeights(Deadline()));
  for (PendingStep& next : pending_) {
    if (next.rows) RETURN_IF_ERROR(next.rows->Await(Deadline()).status());
  }
  RETURN_IF_ERROR(Barrier("rows", Timeout()));
  if (environment_.output != nullptr) {
    const absl::Time deadline = absl::Now() + CheckpointTimeout();
    optim::DenseState state = dense_.State();
    RETURN_IF_ERROR(ReadElsewhere(&state, deadline));
    checkpoint::WriteArgs args{.folder = environment_.output->folder() + "/checkpoints",
                               .manifest = {},
                               .state = &state,
                               .tables = environment_.clients.tables,
                               .item_ids = data_.ItemIds(),
                               .keep = job_.checkpoint().keep(),
                               .deadline = deadline};
    *args.manifest.mutable_job() = job_;
    state_.Save(&args.manifest);
    args.manifest.set_epoch(static_cast<uint64_t>(EpochOf(state_.step())));
    args.manifest.set_seed(job_.seed());
    args.manifest.set_symbols(data_.Symbols());
    args.manifest.set_num_items(data_.num_items());
    for (const SavedFile& file : data_.Files()) *args.manifest.add_data() = file;
    SavePrecision(job_, compute_, &args.manifest);
    for (const TableSpec& spec : job::TableSpecsOf(job_))
      *args.manifest.add_tables() = environment_.clients.tables->StoredSpec(spec);
    const absl::Status written = checkpoint::WriteCheckpoint(args);
    if (absl::IsOutOfRange(written)) return Ended(state_.step(), std::string(written.message()));
    RETURN_IF_ERROR(written);
  }
  // No server may apply a commit of the next step before it has written. Waiting here also keeps
  // the writing out of the next step's deadline.
  RETURN_IF_ERROR(Barrier("checkpoint", CheckpointTimeout()));
  saved_step_ = state_.step();
  return absl::OkStatus();
}

absl::Status Replica::ReadElsewhere(optim::DenseState* state, absl::Time deadline) const {
  sync_->AddEntries(state);
  return sync_->ReadState(state, deadline);
}

absl::StatusOr<report::RunSummary> Replica::Summarise(const std::string& status) {
  RETURN_IF_ERROR(AwaitWeights());
  TakeNote(trace_->Finish(Deadline()));
  const absl::uint128 dense_hash = dense_.State().Hash();
  RETURN_IF_ERROR(stream_.status());
  RETURN_IF_ERROR(parallel::VerifyEqual(*environment_.group, absl::Uint128Low64(dense_hash),
                                        "weights", Deadline()));
  report::RunSummary summary;
  summary.job = job_.name();
  summary.status = status;
  summary.seed = job_.seed();
  summary.steps = state_.step();
  summary.epochs = state_.step() / task_->steps_per_epoch();
  summary.best_epoch = state_.best_epoch();
  summary.best_step = state_.best_step();
  summary.seconds = run_watch_.Seconds();
  summary.layout = {environment_.num_servers, environment_.group->size()};
  summary.metrics = state_.best_metrics();
  summary.samples_per_second = static_cast<double>(samples_) / std::max(1e-9, train_seconds_);
  summary.tokens_per_second = static_cast<double>(tokens_) / std::max(1e-9, train_seconds_);
  summary.dense_parameters = static_cast<uint64_t>(parameters_.num_elements());
  ASSIGN_OR_RETURN(
      const StatisticsReply of_others,
      report::GatherStatistics(*environment_.group, environment_.clients.tables->OwnStatistics(),
                               Deadline()));
  if (environment_.output != nullptr) {
    ASSIGN_OR_RETURN(const ps::HashResult sparse,
                     environment_.clients.tables->Hash().Wait(Deadline()));
    optim::DenseState elsewhere{&parameters_, dense_.slot_names(),
                                std::vector<optim::DenseState::Entry>(parameters_.all().size())};
    RETURN_IF_ERROR(ReadElsewhere(&elsewhere, Deadline()));
    summary.params_hash = dense_hash + elsewhere.Hash() + sparse.hash;
    summary.sparse_rows = sparse.num_rows;
    if (skipped_ > 0) {
      environment_.output->Note(
          absl::StrCat(skipped_, " steps were skipped: their loss or gradients were not finite"));
    }
    ASSIGN_OR_RETURN(StatisticsReply statistics,
                     environment_.clients.tables->Statistics().Wait(Deadline()));
    ps::MergeStatistics(of_others, &statistics);
    for (const std::string& note : report::ServerNotes(statistics, /*may_be_stale=*/!IsBsp()))
      environment_.output->Note(note);
    for (const std::string& line : environment_.clients.tables->Report())
      environment_.output->Note(line);
    RETURN_IF_ERROR(environment_.output->Finish(summary));
  }
  // No replica leaves and takes its part of the job down before rank 0 has read everything.
  RETURN_IF_ERROR(Barrier("end", Timeout()));
  return summary;
}

absl::StatusOr<report::RunSummary> Replica::Run() {
  RETURN_IF_ERROR(Prepare());
  const int64_t first = state_.step() + 1;
  trace_ = MakeTrace(first);
  loader_ = std::make_unique<StepLoader>(task_.get(), first, total_steps_);
  sync_->PullWeights(static_cast<uint64_t>(first));
  last_pending_ = state_.step();
  const int32_t under_way = table_ && job_.ps().consistency() == PERMIT ? job_.ps().staleness() : 1;
  for (int32_t i = 0; i < under_way; ++i) PullNext();
  RETURN_IF_ERROR(MakeUpEvaluation());
  for (int64_t step = first; step <= total_steps_ && !stopping_ && !state_.patience_ended();
       ++step) {
    RETURN_IF_ERROR(TrainStep(step));
    RETURN_IF_ERROR(EvaluateAndSave(step));
  }
  // A signal after the last evaluation stopped nothing.
  const bool complete =
      !EvaluationOwed() && (state_.step() >= total_steps_ || state_.patience_ended());
  return Summarise(complete ? report::kCompleted : report::kStopped);
}

}  // namespace

absl::StatusOr<report::RunSummary> RunReplica(const Job& job, const tasks::JobData& data,
                                              const ReplicaEnvironment& environment) {
  // Declared here so that the replica outlives the abort below, which completes its pending calls.
  Replica replica(job, data, environment);
  absl::StatusOr<report::RunSummary> summary = replica.Run();
  if (!summary.ok()) {
    environment.group->Abort(summary.status());
    if (environment.device_group != nullptr) environment.device_group->Abort(summary.status());
    environment.clients.rows->Abort(summary.status());
  }
  return summary;
}

}  // namespace tandem::loop
