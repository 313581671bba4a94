// The backward pass. It counts dependencies and runs the ready node with the latest forward
// operation first, and nodes that start communication before weight halves. A node may complete
// later and on another thread. Several roots run in one pass.
// The engine sums gradients that meet at a node in the forward order of their consumers, whatever
// order they arrive in. So the bits are fixed.
// Thread rule: Backward runs on its caller's thread; completions may come from any thread.
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

// The weight halves (BackwardWeight) that a pass deferred, in the order in which they became ready.
// A leaf that weight halves will reach gets all its gradients of the pass in Run, with the bits and
// the one hook call of an undivided pass.
// REQUIRES: Run is called once.
class DeferredWeights {
 public:
  void Run(Context& context);
  bool empty() const { return nodes_.empty(); }

 private:
  friend class BackwardPass;
  // A gradient that reached such a leaf through inputs.
  struct Early {
    std::shared_ptr<Node> leaf;
    uint64_t consumer = 0;
    int edge = 0;
    Tensor gradient;
  };

  std::vector<std::shared_ptr<Node>> nodes_;
  std::vector<Early> early_;
};

// Runs the pass until it ends, the context fails, or the context's deadline passes. A passed
// deadline fails the context with DeadlineExceeded naming the node. With `deferred`, the pass hands
// the weight halves over instead of running them.
void Backward(Context& context, const std::vector<BackwardRoot>& roots,
              DeferredWeights* deferred = nullptr);
void Backward(Context& context, const Variable& loss);

}  // namespace tandem
