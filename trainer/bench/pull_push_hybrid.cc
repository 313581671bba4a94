#include "trainer/bench/pull_push_hybrid.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/base/clock.h"
#include "kernels/base/random.h"
#include "kernels/base/status_macros.h"
#include "proto/bench.pb.h"
#include "trainer/autograd/engine.h"
#include "trainer/bench/batches.h"
#include "trainer/bench/members/members.h"
#include "trainer/sparse/pooling.h"

namespace tandem::bench {

namespace {

constexpr int64_t kHidden = 256;
constexpr uint64_t kLabelStream = 3;
constexpr double kDenseRate = 0.05;
// Applies to gradients divided by the global batch: rows move by some 1e-5 a step.
constexpr double kRowRate = 1;

sparse::StepOptimizer::Options Rates(uint32_t table) {
  return {.dense = {.kind = optim::ScheduleKind::CONSTANT, .learning_rate = kDenseRate},
          .tables = {{table, {.kind = optim::ScheduleKind::CONSTANT, .learning_rate = kRowRate}}}};
}

}  // namespace

HybridReplica::HybridReplica(const PullPushCase& bench, uint32_t table, const ps::Clients& clients,
                             comm::ProcessGroup* group)
    : bench_(bench),
      clients_(clients),
      group_(group),
      batches_(MakeBatches(bench, static_cast<uint32_t>(group->rank()))),
      parameters_(/*seed=*/1, DType::F32),
      hidden_(parameters_, "hidden", bench.dim(), kHidden, {.init = nn::Init::UNIFORM_FAN_IN}),
      output_(parameters_, "output", kHidden, 1, {.init = nn::Init::UNIFORM_FAN_IN}),
      dense_({.kind = optim::Kind::SGD}, &parameters_),
      rows_(clients.rows, {{table, bench.dim()}}, &stream_),
      bags_(clients.pooled, table, bench.dim(), ps::Pooling::SUM),
      optimizer_(Rates(table), &dense_, clients.rows) {
  for (size_t offset = 0; offset <= IdsPerStep(bench); offset += kSampleIds)
    offsets_.push_back(offset);
  offsets_tensor_ = Tensor::FromVector(std::vector<int64_t>(offsets_.begin(), offsets_.end()));
  for (uint64_t batch = 0; batch < kNumBatches; ++batch) {
    std::vector<float> labels;
    for (uint64_t sample = 0; sample < bench.batch(); ++sample) {
      labels.push_back(static_cast<float>(
          RandomBelow({kLabelStream, static_cast<uint64_t>(group->rank())}, batch, sample, 2)));
    }
    labels_.push_back(Tensor::FromVector(labels));
  }
}

absl::StatusOr<std::unique_ptr<HybridReplica>> HybridReplica::Create(const PullPushCase& bench,
                                                                     uint32_t table,
                                                                     const ps::Clients& clients,
                                                                     comm::ProcessGroup* group) {
  std::unique_ptr<HybridReplica> replica(new HybridReplica(bench, table, clients, group));
  ASSIGN_OR_RETURN(replica->ddp_,
                   parallel::Ddp::Create(&replica->parameters_, group, &replica->stream_, {}));
  return replica;
}

HybridReplica::Lookup HybridReplica::LookUp(uint64_t step) const {
  Lookup lookup;
  if (bench_.mode() == PullPushCase::HYBRID_POOLED) {
    lookup.bytes = PooledBytes(bench_);
    return lookup;
  }
  sparse::MergedIds merged =
      sparse::MergeIds({absl::MakeConstSpan(batches_[(step - 1) % kNumBatches])});
  lookup.places = merged.places[0];
  lookup.bytes = RowBytes(bench_, merged.ids.size());
  lookup.ids = std::move(merged.ids);
  return lookup;
}

void HybridReplica::Pull(uint64_t step, Lookup* lookup) {
  if (bench_.mode() == PullPushCase::HYBRID) {
    lookup->rows = rows_.Pull(step, /*create=*/true, {std::move(lookup->ids)});
  } else {
    lookup->bags =
        bags_.Pull(step, /*create=*/true, {batches_[(step - 1) % kNumBatches], offsets_, {}});
  }
}

Variable HybridReplica::Enter(Context& context, sparse::StepPushes& autograd) {
  return lookup_.rows != nullptr ? rows_.Enter(context, *lookup_.rows, autograd, /*last_pass=*/0)[0]
                                 : bags_.Enter(context, *lookup_.bags, autograd);
}

void HybridReplica::ForwardBackward(Context& context, const Variable& pulled) {
  if (context.failed()) return;
  const Variable sums =
      lookup_.rows == nullptr
          ? pulled
          : sparse::PoolRows(context, pulled, {lookup_.places, offsets_tensor_}, ps::Pooling::SUM);
  const Variable hidden = hidden_.ForwardActivated(context, sums, kernels::Activation::RELU);
  const Variable logits =
      ops::Reshape(context, output_.Forward(context, hidden), Shape{bench_.batch()});
  const Variable loss =
      ops::BinaryCrossEntropySum(context, logits, labels_[(context.step() - 1) % kNumBatches]);
  Backward(context, loss);
  ddp_->Finish(context);
  if (!context.failed() && !std::isfinite(loss.value().At(0))) {
    context.Fail(absl::InternalError(
        absl::StrCat("the loss of step ", context.step(), " is ", loss.value().At(0))));
  }
}

absl::Status HybridReplica::Commit(Context& context, sparse::StepPushes& autograd,
                                   bool another_follows) {
  Lookup next;
  if (another_follows) next = LookUp(context.step() + 1);  // while gradients are in flight
  optimizer_.AwaitPushes(context, autograd);
  RETURN_IF_ERROR(optimizer_
                      .Step(context, {.count = static_cast<double>(bench_.batch()) *
                                               static_cast<double>(bench_.clients())})
                      .status());
  pulled_ahead_ = another_follows;
  if (!another_follows) return optimizer_.AwaitCommit(context.deadline());
  Pull(context.step() + 1, &next);
  lookup_ = std::move(next);
  return absl::OkStatus();
}

absl::Status HybridReplica::Step(bool another_follows, PullPushRepetition* times) {
  const uint64_t step = num_steps_ + 1;
  Context context({.stream = &stream_, .step = step, .deadline = absl::Now() + kBenchTimeout});
  sparse::StepPushes autograd(clients_.rows, clients_.pooled,
                              static_cast<uint32_t>(group_->rank()));
  autograd.Begin(step);
  ddp_->BeginStep(1);
  ddp_->BeginPass(context, 0);
  Stopwatch watch;
  if (!std::exchange(pulled_ahead_, false)) {
    lookup_ = LookUp(step);
    watch.Lap();
    Pull(step, &lookup_);
  }
  const double bytes = lookup_.bytes;
  const Variable pulled = Enter(context, autograd);
  times->set_pull_seconds(times->pull_seconds() + watch.Lap());
  times->set_pull_bytes(times->pull_bytes() + bytes);
  ForwardBackward(context, pulled);
  watch.Lap();
  absl::Status status =
      context.failed() ? context.status() : Commit(context, autograd, another_follows);
  if (!status.ok()) {  // wakes peers, and completes the pushes that `autograd` waits for
    clients_.rows->Abort(status);
    group_->Abort(status);
    return status;
  }
  times->set_push_seconds(times->push_seconds() + watch.Lap());
  times->set_push_bytes(times->push_bytes() + bytes);
  num_steps_ = step;
  return absl::OkStatus();
}

}  // namespace tandem::bench
