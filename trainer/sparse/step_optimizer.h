// Ends a step: commits the sparse rows on their servers and the dense parameters here with one scale, so that both halves
// always belong to the same step. The scale is 1 / global count, times the factor of global-norm clipping (Pascanu et al.
// 2013) over dense and sparse gradients together. A step whose gradients are not finite is skipped in both halves.
// Thread rule: the step's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "ps/client/row_client.h"
#include "trainer/optim/dense_optimizer.h"
#include "trainer/optim/schedule.h"
#include "trainer/sparse/step_pushes.h"

namespace tandem::sparse {

struct TableSchedule {
  uint32_t table = 0;
  optim::Schedule schedule;
};

class StepOptimizer {
 public:
  struct Options {
    optim::Schedule dense;
    std::vector<TableSchedule> tables;
    double max_grad_norm = 0;  // 0: no clipping
  };
  StepOptimizer(Options options, optim::DenseOptimizer* dense, ps::RowClient* client)
      : options_(std::move(options)), dense_(dense), client_(client) {}
  ~StepOptimizer();

  struct StepArgs {
    double count = 0;        // the global number of targets
    bool want_norm = false;
    bool skip = false;       // leave the step out: its loss is not finite, or pushes that are not were kept back
    // Asked if dense gradients are not finite, which all replicas find alike. An error ends the step before anything of it is committed.
    // Null, or Ok: the step is skipped.
    std::function<absl::Status()> on_non_finite = nullptr;
    bool flush = false;      // ps::CommitArgs: the tables are read next
  };
  struct StepResult {
    double learning_rate = 0;
    double grad_norm = 0;     // of the mean gradient; 0 if not asked for
    bool skipped = false;
  };
  // Waits for the acknowledgements of the step's pushes and for the last commit; the first failure fails the context.
  void AwaitPushes(Context& context, StepPushes& autograd);
  // Dense gradients are summed over replicas, or pushed, already. The commit travels on when this returns: a pull for the next step
  // waits for it at the server. All replicas pass the same args. REQUIRES: AwaitPushes.
  absl::StatusOr<StepResult> Step(Context& context, const StepArgs& args);
  // The learning rate of dense parameters.
  double LearningRate(int64_t step) const { return options_.dense.At(step); }
  // Waits until the last commit has been applied.
  absl::Status AwaitCommit(absl::Time deadline);

 private:
  Options options_;
  optim::DenseOptimizer* dense_;
  ps::RowClient* client_;
  rpc::Future<rpc::Done> commit_;
};

}  // namespace tandem::sparse
