// The distributed optimizer. At every owner, it applies the gradients that a context's backward
// passes left for remote parameters. An optimizer beside the parameters does the work. Gradients of
// other trainers' contexts are neither touched nor mixed in.
// (sparse/step_optimizer.h commits the rows and dense parameters of the training loop.)
// Thread rule: the step's thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trainer/optim/dense_optimizer.h"
#include "trainer/remote/dist_autograd.h"
#include "trainer/remote/remote_module.h"

namespace tandem::remote {

class RemoteOptimizer {
 public:
  // Makes one optimizer at each owner. It counts its own steps.
  static absl::StatusOr<std::unique_ptr<RemoteOptimizer>> Create(
      Host& host, const optim::DenseOptions& options,
      const std::vector<RemoteParameter>& parameters, absl::Time deadline);

  // Steps all owners at a time. Returns how many parameters had a gradient. A failure fails the
  // step's context. Owners that have already applied the step do not undo it.
  // REQUIRES: called after Backward, before the context ends.
  absl::StatusOr<uint64_t> Step(DistAutogradContext& context, double learning_rate,
                                double gradient_scale = 1);

 private:
  explicit RemoteOptimizer(std::vector<RemoteRef> refs) : refs_(std::move(refs)) {}

  std::vector<RemoteRef> refs_;  // one for each owner
};

}  // namespace tandem::remote
