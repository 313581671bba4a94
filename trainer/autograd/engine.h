// The backward pass: counts dependencies, runs what is ready, latest forward operation first. A node may complete later
// and on another thread; several roots run in one pass. Gradients that meet at a node are summed in the forward order of
// their consumers, whatever order they arrive in, so the bits are fixed.
// Thread rule: Backward runs on its caller's thread; completions may come from any.
#pragma once

#include <memory>
#include <vector>

#include "trainer/autograd/context.h"
#include "trainer/autograd/variable.h"

namespace tandem {

struct BackwardRoot {
  Variable variable;
  Tensor gradient;  // undefined: ones
};

// The second halves that a pass left for later, in the order in which they became ready. Run is called once.
class DeferredWeights {
 public:
  void Run(Context& context);
  bool empty() const { return nodes_.empty(); }

 private:
  friend class BackwardPass;
  std::vector<std::shared_ptr<Node>> nodes_;
};

// Runs the pass to its end, or until the context fails or its deadline passes (which fails it: DeadlineExceeded naming
// the node). With `deferred`, second halves (BackwardWeight) are not run but handed over.
void Backward(Context& context, const std::vector<BackwardRoot>& roots, DeferredWeights* deferred = nullptr);
void Backward(Context& context, const Variable& loss);

}  // namespace tandem
