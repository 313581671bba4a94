// A vertex of the backward graph: one operation's gradient in two halves, or a leaf that collects a gradient. Nodes own
// their inputs' nodes, so dropping the loss drops the graph. The engine (engine.h) calls them; layers never do.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trainer/autograd/context.h"
#include "trainer/tensor/tensor.h"

namespace tandem {

class Node {
 public:
  // Takes one gradient per input edge, in order; an undefined tensor means "none". Call it exactly once, now or later,
  // from any thread: a gradient may come from a network.
  using Complete = std::function<void(std::vector<Tensor> input_gradients)>;

  Node(std::string name, uint64_t sequence, std::vector<std::shared_ptr<Node>> inputs,
       std::vector<std::shared_ptr<Node>> weights)
      : name_(std::move(name)), sequence_(sequence), inputs_(std::move(inputs)), weights_(std::move(weights)) {}
  virtual ~Node() = default;

  // First half: gradients of `inputs`.
  virtual void BackwardInput(Context& context, const Tensor& gradient, Complete complete) = 0;
  // Second half: gradients of `weights`; may run much later, once, after BackwardInput.
  virtual std::vector<Tensor> BackwardWeight(Context& /*context*/) { return {}; }
  // Drops whatever forward saved. Called once when both halves are done.
  virtual void Release() {}

  // Memory, uninitialised, for a gradient that the caller forms and delivers to this node: where the node keeps its sum if that place
  // is free, so that nothing is copied later.
  virtual Tensor GradientMemory(Context& context, Shape shape, DType dtype) { return context.Empty(shape, dtype); }
  // True if the first half reads its gradient's numbers on the host. Where such a node is a root, its gradient of 1 lies there: the host
  // need not wait for the device to learn it.
  virtual bool ReadsGradientOnHost() const { return false; }
  // True if the first half has something to do though nothing flowed to this node: what another output of its operation received.
  virtual bool HasGradientElsewhere() const { return false; }
  // True if the gradient lies where this node keeps its sum: it may be overwritten though others hold the buffer.
  virtual bool OwnsMemory(const Tensor& /*gradient*/) const { return false; }

  const std::string& name() const { return name_; }
  uint64_t sequence() const { return sequence_; }
  // Entries may be null: that input needs no gradient.
  const std::vector<std::shared_ptr<Node>>& inputs() const { return inputs_; }
  const std::vector<std::shared_ptr<Node>>& weights() const { return weights_; }

 private:
  const std::string name_;
  const uint64_t sequence_;
  const std::vector<std::shared_ptr<Node>> inputs_;
  const std::vector<std::shared_ptr<Node>> weights_;
};

// Where a gradient ends: a parameter or a block of pulled rows. The gradient is summed over consumers in a fixed order,
// then over passes (gradient accumulation). The hook runs once per pass, when the pass's sum is complete.
class LeafNode : public Node {
 public:
  using Hook = std::function<void(Context&)>;

  // The last in sequence, so that it runs, and its hook with it, as soon as its gradient is complete.
  explicit LeafNode(std::string name) : Node(std::move(name), ~uint64_t{0}, {}, {}) {}

  void BackwardInput(Context& context, const Tensor& gradient, Complete complete) override;
  Tensor GradientMemory(Context& context, Shape shape, DType dtype) override;
  bool OwnsMemory(const Tensor& gradient) const override {
    return storage_.defined() && gradient.raw() == storage_.raw();
  }

  // Storage for the gradient, e.g. a place in a bucket; without it the first gradient's own memory is kept. It is lent to the
  // first producer that asks for memory.
  void PlaceGradient(Tensor storage) { storage_ = std::move(storage); }
  // Declares the storage itself to be the gradient: whoever reduces it has filled it. REQUIRES: PlaceGradient.
  void AcceptStorage() {
    gradient_ = storage_;
    has_gradient_ = storage_lent_ = true;
  }
  // A BF16 copy of a parameter's value for matrix products, refreshed by whoever changes the value. Undefined in f32 runs.
  void set_shadow(Tensor shadow) { shadow_ = std::move(shadow); }
  const Tensor& shadow() const { return shadow_; }
  void set_hook(Hook hook) { hook_ = std::move(hook); }

  bool has_gradient() const { return has_gradient_; }
  // REQUIRES: has_gradient().
  const Tensor& gradient() const { return gradient_; }
  void ClearGradient() {
    has_gradient_ = false;
    storage_lent_ = false;
    gradient_ = Tensor();
  }

 private:
  Tensor shadow_;
  Tensor storage_;
  Tensor gradient_;
  bool has_gradient_ = false;
  bool storage_lent_ = false;  // a gradient on its way to this leaf lies in the storage, or the sum does
  Hook hook_;
};

}  // namespace tandem
