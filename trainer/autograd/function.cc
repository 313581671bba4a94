#include "trainer/autograd/function.h"

namespace tandem {

namespace {

class FunctionNode : public Node {
 public:
  FunctionNode(std::string name, uint64_t sequence, std::vector<std::shared_ptr<Node>> inputs,
               std::vector<std::shared_ptr<Node>> weights, FunctionParts parts)
      : Node(std::move(name), sequence, std::move(inputs), std::move(weights)),
        backward_input_(std::move(parts.backward_input)),
        backward_weight_(std::move(parts.backward_weight)),
        reads_gradient_on_host_(parts.reads_gradient_on_host),
        starts_work_(parts.starts_work),
        recoverable_(std::move(parts.recoverable)) {}

  void BackwardInput(Context& context, const Tensor& gradient, Complete complete) override {
    if (!weights().empty()) gradient_ = gradient;
    if (context.failed() || !backward_input_) return complete({});
    complete(backward_input_(context, gradient));
  }
  std::vector<Tensor> BackwardWeight(Context& context) override {
    return backward_weight_ ? backward_weight_(context, gradient_) : std::vector<Tensor>();
  }
  bool ReadsGradientOnHost() const override { return reads_gradient_on_host_; }
  bool StartsWork() const override { return starts_work_; }
  std::shared_ptr<Recoverable> recoverable() const override { return recoverable_; }
  void Release() override {
    backward_input_ = nullptr;
    backward_weight_ = nullptr;
    gradient_ = Tensor();
    recoverable_ = nullptr;
  }

 private:
  BackwardFunction backward_input_;
  BackwardFunction backward_weight_;
  const bool reads_gradient_on_host_, starts_work_;
  std::shared_ptr<Recoverable> recoverable_;
  Tensor gradient_;  // kept between the two halves
};

// The node of the first output and of the operation. The second output's node depends on it and
// leaves its gradient here.
class PairNode : public Node {
 public:
  PairNode(std::string name, uint64_t sequence, std::vector<std::shared_ptr<Node>> inputs,
           PairBackwardFunction backward)
      : Node(std::move(name), sequence, std::move(inputs), {}), backward_(std::move(backward)) {}

  void BackwardInput(Context& context, const Tensor& gradient, Complete complete) override {
    complete(context.failed() || !backward_ ? std::vector<Tensor>()
                                            : backward_(context, gradient, second_));
  }
  bool HasGradientElsewhere() const override { return second_.defined(); }
  void Release() override {
    backward_ = nullptr;
    second_ = Tensor();
  }
  void TakeSecond(const Tensor& gradient) { second_ = gradient; }

 private:
  PairBackwardFunction backward_;
  Tensor second_;
};

class SecondNode : public Node {
 public:
  SecondNode(const std::string& name, uint64_t sequence, const std::shared_ptr<PairNode>& pair)
      : Node(name, sequence, {pair}, {}), pair_(pair.get()) {}

  void BackwardInput(Context&, const Tensor& gradient, Complete complete) override {
    pair_->TakeSecond(gradient);
    complete({});
  }

 private:
  PairNode* const pair_;  // the inputs own the pair
};

std::vector<std::shared_ptr<Node>> NodesOf(const std::vector<Variable>& variables, bool* any) {
  std::vector<std::shared_ptr<Node>> nodes;
  for (const Variable& variable : variables) {
    nodes.push_back(variable.node());
    *any = *any || variable.requires_gradient();
  }
  return nodes;
}

}  // namespace

Variable Record(Context& context, std::string name, Tensor output, FunctionParts parts) {
  bool any_input = false, any_weight = false;
  auto inputs = NodesOf(parts.inputs, &any_input);
  auto weights = NodesOf(parts.weights, &any_weight);
  if (!context.training() || (!any_input && !any_weight))
    return Variable::Constant(std::move(output));
  if (!any_input) parts.backward_input = nullptr;
  auto node = std::make_shared<FunctionNode>(
      std::move(name), context.NextNode(), std::move(inputs),
      any_weight ? std::move(weights) : std::vector<std::shared_ptr<Node>>(), std::move(parts));
  return Variable(std::move(output), std::move(node));
}

std::pair<Variable, Variable> RecordPair(Context& context, const std::string& name, Tensor first,
                                         Tensor second, const std::vector<Variable>& inputs,
                                         PairBackwardFunction backward) {
  bool any = false;
  auto nodes = NodesOf(inputs, &any);
  if (!context.training() || !any)
    return {Variable::Constant(std::move(first)), Variable::Constant(std::move(second))};
  const auto pair =
      std::make_shared<PairNode>(name, context.NextNode(), std::move(nodes), std::move(backward));
  return {Variable(std::move(first), pair),
          Variable(std::move(second),
                   std::make_shared<SecondNode>(name + ".second", context.NextNode(), pair))};
}

}  // namespace tandem
