#include "trainer/loop/step.h"

#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/random.h"
#include "kernels/base/status_macros.h"
#include "kernels/memory/kernel_span.h"
#include "trainer/loop/replica/divergence.h"

namespace tandem::loop {

using report::StepPart;

absl::Status Step::Run(report::StepRecord& record) {
  const KernelSpan span(replica_.stream, SpanKind::STEP, "step");
  Context context({.stream = &replica_.stream,
                   .seed = replica_.job.seed(),
                   .step = static_cast<uint64_t>(record.step),
                   .training = true,
                   .compute = replica_.compute,
                   .deadline = replica_.Deadline()});
  Batch& batch = batches_.front();  // its rows have arrived or are on their way
  // DDP launches all-reduces as buckets fill, and row gradients go to their servers.
  ASSIGN_OR_RETURN(const double loss_sum, ForwardBackward(context, batch, record));
  RETURN_IF_ERROR(ShareLoss(context, loss_sum, record));
  RETURN_IF_ERROR(Commit(context, record));  // dense and sparse together, or neither
  MoveOn(record.step + 1);
  return absl::OkStatus();
}

absl::StatusOr<double> Step::ForwardBackward(Context& context, Batch& batch,
                                             report::StepRecord& record) {
  record.samples = batch.input->global_samples;
  record.tokens = batch.input->global_tokens;
  record.flops = batch.input->flops / replica_.mesh.replica().size();
  replica_.pushes.Begin(context.step());
  std::vector<Variable> rows;
  if (replica_.tables) {
    rows = replica_.tables->Enter(context, *batch.rows, replica_.pushes,
                                  replica_.job.parallel().microbatches() - 1);
  }
  context.Fail(replica_.sync->AwaitWeights(context.deadline()));
  observer_.AfterPart(StepPart::PULL);
  if (context.failed()) return context.status();
  const std::vector<Tensor> losses = passes_.Run(context, *batch.input, rows);
  record.launched_graph = passes_.launched_graph();
  observer_.AfterPart(StepPart::COMPUTE);
  // Read once all work is submitted, so that the host never waits for a device in between.
  double loss_sum = 0;
  for (const Tensor& loss : losses) {
    if (loss.defined()) loss_sum += loss.ToHost(replica_.stream).At(0);
  }
  replica_.sync->Finish(context);
  context.Fail(replica_.stream.status());
  if (context.failed()) return context.status();
  return loss_sum;
}

absl::Status Step::ShareLoss(const Context& context, double loss_sum, report::StepRecord& record) {
  const std::optional<std::string> kept_back = replica_.sync->KeptBack();
  // Tensor-parallel ranks have the same loss, and the first one counts. Stages before the last one
  // have none.
  const double counted = replica_.mesh.tp().rank() == 0 ? loss_sum : 0;
  double sums[3] = {counted, replica_.stop_vote.Cast(), kept_back ? 1.0 : 0.0};
  const comm::CollectiveArgs args{.stream = &replica_.stream, .tag = StableHash("loss")};
  RETURN_IF_ERROR(replica_.world.Await(replica_.world.AllReduce(DenseView(sums, Shape{3}), args),
                                       context.deadline()));
  record.loss = sums[0] / batches_.front().num_targets();
  replica_.stop_vote.Count(sums[1]);
  record.skipped = sums[2] > 0 || !std::isfinite(record.loss);
  if (record.skipped) {
    const std::string what =
        !std::isfinite(record.loss)
            ? absl::StrCat("loss is ", NonFiniteText(record.loss))
            : absl::StrCat("the gradient of ", kept_back.value_or("a served parameter"),
                           " is not finite");
    RETURN_IF_ERROR(replica_.divergence.Decide(record.step, what));
  }
  observer_.AfterPart(StepPart::COLLECTIVE);
  return absl::OkStatus();
}

absl::Status Step::Commit(Context& context, report::StepRecord& record) {
  const KernelSpan span(replica_.stream, SpanKind::PHASE, "commit");
  replica_.optimizer.AwaitPushes(context, replica_.pushes);
  observer_.AfterPart(StepPart::PUSH);
  const auto on_non_finite = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const std::string name,
                     replica_.FoundByAny(replica_.dense.FirstNonFiniteGradient(replica_.stream)));
    return replica_.divergence.Decide(record.step,
                                      absl::StrCat("the gradient of ", name, " is not finite"));
  };
  std::function<absl::StatusOr<double>(double)> sum_over_ranks, sum_over_clients;
  if (replica_.is_cut())
    sum_over_ranks = [&](double own) { return SumOver(replica_.parts(), context, own); };
  if (replica_.has_tables && replica_.mesh.replica().size() > 1) {
    // Each client has the norm of all, so that of the first stage counts.
    sum_over_clients = [&](double own) {
      return SumOver(replica_.mesh.replica(), context, replica_.mesh.pp().rank() == 0 ? own : 0);
    };
  }
  ASSIGN_OR_RETURN(const sparse::StepOptimizer::StepResult result,
                   replica_.optimizer.Step(context, {.count = batches_.front().num_targets(),
                                                     .want_norm = record.logged,
                                                     .skip = record.skipped,
                                                     .on_non_finite = on_non_finite,
                                                     .sum_over_ranks = sum_over_ranks,
                                                     .sum_over_clients = sum_over_clients,
                                                     .flush = TablesAreReadAfter(record.step)}));
  observer_.AfterPart(StepPart::COMPUTE);
  record.learning_rate = result.learning_rate;
  record.grad_norm = result.grad_norm;
  record.skipped = result.skipped;
  return absl::OkStatus();
}

absl::StatusOr<double> Step::SumOver(comm::ProcessGroup& ranks, const Context& context,
                                     double own) {
  const comm::CollectiveArgs args{.stream = &replica_.stream, .tag = StableHash("norm")};
  RETURN_IF_ERROR(
      ranks.Await(ranks.AllReduce(DenseView(&own, Shape{1}), args), context.deadline()));
  return own;
}

void Step::MoveOn(int64_t step) {
  batches_.PopFront();
  // Pulls follow the commit to the servers and wait there until the commit is applied. The last
  // step pulls weights too, for the evaluation and the checkpoint.
  replica_.sync->PullWeights(static_cast<uint64_t>(step));
  batches_.PullNext();
}

bool Step::TablesAreReadAfter(int64_t step) const {
  return replica_.stop_vote.stopping() || replica_.calendar.EvaluationDue(step) ||
         replica_.calendar.CheckpointDue(step);
}

}  // namespace tandem::loop
