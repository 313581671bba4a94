// The distributed optimizer: applies, at every owner, what a context's backward passes have left for remote parameters, with an
// optimizer that lives beside them. Contexts of other trainers are not touched, their gradients never mixed in.
// (dist_optimizer.h commits the rows and dense parameters of the training loop.)
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
  // Makes one at each owner. The optimizer counts its own steps.
  static absl::StatusOr<std::unique_ptr<RemoteOptimizer>> Create(Host& host, const optim::DenseOptions& options,
                                                                 const std::vector<RemoteParameter>& parameters, absl::Time deadline);

  // After Backward, before the context ends; all owners at a time. Returns how many parameters had a gradient. A failure fails
  // the step's context; owners that had applied the step by then have applied it.
  absl::StatusOr<uint64_t> Step(DistAutogradContext& context, double learning_rate, double gradient_scale = 1);

 private:
  explicit RemoteOptimizer(std::vector<RemoteRef> refs) : refs_(std::move(refs)) {}

  std::vector<RemoteRef> refs_;  // one for each owner
};

}  // namespace tandem::remote
