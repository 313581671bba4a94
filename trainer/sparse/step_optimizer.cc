#include "trainer/sparse/step_optimizer.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/base/status_macros.h"

namespace tandem::sparse {

StepOptimizer::~StepOptimizer() {
  if (commit_.valid()) commit_.Wait(absl::InfiniteFuture()).IgnoreError();
}

absl::Status StepOptimizer::AwaitCommit(absl::Time deadline) {
  if (!commit_.valid()) return absl::OkStatus();
  RETURN_IF_ERROR(commit_.Wait(deadline).status());
  commit_ = rpc::Future<rpc::Done>();
  return absl::OkStatus();
}

void StepOptimizer::AwaitPushes(Context& context, StepPushes& autograd) {
  autograd.AwaitPushes(context);
  if (!context.failed()) context.Fail(AwaitCommit(context.deadline()));
}

absl::StatusOr<StepOptimizer::StepResult> StepOptimizer::Step(Context& context,
                                                              const StepArgs& args) {
  if (context.failed()) return context.status();
  StepResult result;
  double dense_squared = args.skip ? std::numeric_limits<double>::quiet_NaN()
                                   : dense_->GradientSquaredNorm(context.stream());
  RETURN_IF_ERROR(context.stream().status());  // a failed device makes the norm meaningless
  if (!args.skip && args.sum_over_ranks) {
    ASSIGN_OR_RETURN(dense_squared, args.sum_over_ranks(dense_squared));
  }
  double scale = args.count > 0 ? 1.0 / args.count : 0.0;
  result.skipped = !std::isfinite(dense_squared);
  if (result.skipped && !args.skip && args.on_non_finite) RETURN_IF_ERROR(args.on_non_finite());
  if (args.want_norm || options_.max_grad_norm > 0) {
    ASSIGN_OR_RETURN(const absl::uint128 sparse,
                     client_->GradientNorm(context.step()).Wait(context.deadline()));
    double sparse_squared = static_cast<double>(absl::Uint128High64(sparse)) +
                            static_cast<double>(absl::Uint128Low64(sparse)) * 0x1p-64;
    if (args.sum_over_clients) {
      ASSIGN_OR_RETURN(sparse_squared, args.sum_over_clients(sparse_squared));
    }
    result.grad_norm = std::sqrt(dense_squared + sparse_squared) * scale;
    if (options_.max_grad_norm > 0)
      scale *= std::min(1.0, options_.max_grad_norm / (result.grad_norm + 1e-6));
  }

  ps::CommitArgs commit;
  commit.step = context.step();
  for (const TableSchedule& table : options_.tables) {
    commit.rates.push_back({table.table, table.schedule.At(static_cast<int64_t>(context.step()))});
  }
  commit.gradient_scale = static_cast<float>(scale);
  commit.skip = result.skipped;
  commit.flush = args.flush;
  commit_ = client_->Commit(commit);
  result.learning_rate = LearningRate(static_cast<int64_t>(context.step()));
  if (!result.skipped)
    dense_->Update(context.step(), result.learning_rate, scale, context.stream());
  return result;
}

}  // namespace tandem::sparse
