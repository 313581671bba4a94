// How an operation records itself: a node made of two closures, which hold what forward saved.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "trainer/autograd/variable.h"

namespace tandem {

// Gradients of the inputs, given the output's. May leave an entry undefined where the input needs none.
using BackwardFunction = std::function<std::vector<Tensor>(Context&, const Tensor& gradient)>;

struct FunctionParts {
  std::vector<Variable> inputs;
  BackwardFunction backward_input;
  std::vector<Variable> weights = {};
  BackwardFunction backward_weight = nullptr;  // gets the same gradient as backward_input
  bool reads_gradient_on_host = false;         // Node::ReadsGradientOnHost
};

// The output Variable of an operation: a constant if nothing needs a gradient or the context is not training.
Variable Record(Context& context, std::string name, Tensor output, FunctionParts parts);

// Gradients of the inputs, given those of two outputs. One of the two may be undefined: nothing flowed there.
using PairBackwardFunction = std::function<std::vector<Tensor>(Context&, const Tensor& first, const Tensor& second)>;

// The same for an operation of two outputs: `backward` runs once, when both outputs' gradients are complete.
std::pair<Variable, Variable> RecordPair(Context& context, const std::string& name, Tensor first, Tensor second,
                                         const std::vector<Variable>& inputs, PairBackwardFunction backward);

}  // namespace tandem
