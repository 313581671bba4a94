// How an operation records itself: as a node made of two closures. The closures hold the tensors
// that forward saved.
// Thread rule: the context's thread.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "trainer/autograd/variable.h"

namespace tandem {

// Returns the gradients of the inputs, given the gradient of the output. May leave an entry
// undefined if the input needs no gradient.
using BackwardFunction = std::function<std::vector<Tensor>(Context&, const Tensor& gradient)>;

struct FunctionParts {
  std::vector<Variable> inputs;
  BackwardFunction backward_input;
  std::vector<Variable> weights = {};
  BackwardFunction backward_weight = nullptr;          // gets the same gradient as backward_input
  bool reads_gradient_on_host = false;                 // Node::ReadsGradientOnHost
  bool starts_work = false;                            // Node::StartsWork
  std::shared_ptr<Recoverable> recoverable = nullptr;  // Node::recoverable
};

// Returns the output Variable of an operation. It is a constant if no input needs a gradient or the
// context is not training.
Variable Record(Context& context, std::string name, Tensor output, FunctionParts parts);

// Returns the gradients of the inputs, given the gradients of two outputs. One of the two gradients
// may be undefined: no gradient reached that output.
using PairBackwardFunction =
    std::function<std::vector<Tensor>(Context&, const Tensor& first, const Tensor& second)>;

// Like Record, for an operation with two outputs. `backward` runs once, when the gradients of both
// outputs are complete.
std::pair<Variable, Variable> RecordPair(Context& context, const std::string& name, Tensor first,
                                         Tensor second, const std::vector<Variable>& inputs,
                                         PairBackwardFunction backward);

}  // namespace tandem
