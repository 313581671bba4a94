// Ends a step: commits sparse rows on their servers and updates dense parameters here, with one
// scale. Both halves therefore always belong to the same step. The scale is 1 / global count, times
// the factor of global-norm clipping (Pascanu et al. 2013). The norm covers dense and sparse
// gradients together. A step whose gradients are not finite is skipped in both halves.
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
    double count = 0;  // the global number of targets
    bool want_norm = false;
    // Skip the step: its loss is not finite, or non-finite pushes were kept back.
    bool skip = false;
    // Called if dense gradients are not finite, which all replicas find alike. An error ends the
    // step before any of it is committed. Null or Ok: the step is skipped.
    std::function<absl::Status()> on_non_finite = nullptr;
    // Adds up the squared norms of all ranks' dense gradients. Null if this rank has all sums.
    std::function<absl::StatusOr<double>(double own)> sum_over_ranks = nullptr;
    // The same for rows' gradients, whose norm only some ranks' clients know. Null: all do.
    std::function<absl::StatusOr<double>(double own)> sum_over_clients = nullptr;
    bool flush = false;  // ps::CommitArgs.flush: the tables are read next
  };
  struct StepResult {
    double learning_rate = 0;
    double grad_norm = 0;  // of the mean gradient; 0 if not wanted
    bool skipped = false;
  };
  // Waits for the acknowledgements of the step's pushes and for the last commit. The first failure
  // fails the context.
  void AwaitPushes(Context& context, StepPushes& autograd);
  // Commits the step. The commit is still in flight on return; a pull for the next step waits for
  // it at the server.
  // REQUIRES: AwaitPushes was called, and dense gradients are already summed over replicas or
  // pushed.
  // REQUIRES: all replicas pass the same args.
  absl::StatusOr<StepResult> Step(Context& context, const StepArgs& args);
  // Returns the learning rate of dense parameters.
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
