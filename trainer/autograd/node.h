// A vertex of the backward graph: one operation's gradient in two halves, or a leaf that collects a
// gradient. Nodes own their inputs' nodes, so dropping the loss drops the graph. Only the engine
// (engine.h) calls nodes; layers never do.
// Thread rule: the engine's thread; Complete from any thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trainer/autograd/context.h"
#include "trainer/tensor/tensor.h"

namespace tandem {

// A tensor that is made again when a backward pass needs it, instead of being kept since forward.
class Recoverable {
 public:
  virtual ~Recoverable() = default;
  // Starts the work without waiting for it. May be called again.
  virtual void Start(Context& context) = 0;
  // Returns the tensor. Keeps it until this object goes.
  virtual Tensor Value(Context& context) = 0;
};

class Node {
 public:
  // Takes one gradient per input edge, in order; an undefined tensor means "none". May be called
  // later and from any thread, because a gradient may come from a network.
  // REQUIRES: called exactly once.
  using Complete = std::function<void(std::vector<Tensor> input_gradients)>;

  Node(std::string name, uint64_t sequence, std::vector<std::shared_ptr<Node>> inputs,
       std::vector<std::shared_ptr<Node>> weights)
      : name_(std::move(name)),
        sequence_(sequence),
        inputs_(std::move(inputs)),
        weights_(std::move(weights)) {}
  virtual ~Node() = default;

  // First half: computes the gradients of `inputs`.
  virtual void BackwardInput(Context& context, const Tensor& gradient, Complete complete) = 0;
  // Second half: computes the gradients of `weights`. Runs once after BackwardInput, possibly much
  // later.
  virtual std::vector<Tensor> BackwardWeight(Context& /*context*/) { return {}; }
  // Drops everything that forward saved. Called once, when both halves are done.
  virtual void Release() {}

  // Uninitialised memory for a gradient that the caller computes and delivers to this node. Returns
  // the place of the node's sum if that place is free, which saves a copy.
  virtual Tensor GradientMemory(Context& context, Shape shape, DType dtype) {
    return context.Empty(shape, dtype);
  }
  // True if the first half reads the numbers of its gradient on the host. The root gradient of 1 of
  // such a node lies in host memory, so the host need not wait for the device.
  virtual bool ReadsGradientOnHost() const { return false; }
  // True if the first half starts work that goes on elsewhere, e.g. in a process group. The engine
  // runs it before the weight halves of other nodes, which then overlap with that work.
  virtual bool StartsWork() const { return false; }
  // Makes the node's output again in backward, so that consumers do not keep the output. Null: they
  // keep it.
  virtual std::shared_ptr<Recoverable> recoverable() const { return nullptr; }
  // True if the first half must run although no gradient reached this node, because another output
  // of the operation received one.
  virtual bool HasGradientElsewhere() const { return false; }
  // True if the gradient lies in the place of this node's sum. Such a gradient may be overwritten
  // although other tensors hold the buffer.
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

// The end of a gradient: a parameter or a block of pulled rows. The leaf owns the value, so the
// value can move to other memory, or be freed between uses. Operations read the value in forward
// and again in backward, and keep no copy. The leaf sums the gradient over consumers in a fixed
// order, then over passes (gradient accumulation). The hook runs once per pass, when the pass's sum
// is complete.
// Ranks may share a leaf's memory (ZeRO): then each keeps a part of the value, of the gradient's
// sum or of both, and has the whole array only while operations use it.
class LeafNode : public Node {
 public:
  using Hook = std::function<void(Context&)>;
  // Elements [begin, begin + elements.num_elements()) of an array, flat.
  struct Part {
    int64_t begin = 0;
    Tensor elements;  // undefined: none
  };

  // The leaf has the highest sequence number, so the leaf and its hook run as soon as the gradient
  // is complete.
  LeafNode(std::string name, Tensor value)
      : LeafNode(std::move(name), value.shape(), value.dtype()) {
    value_ = std::move(value);
  }
  // A leaf without a value yet.
  LeafNode(std::string name, Shape shape, DType dtype)
      : Node(std::move(name), ~uint64_t{0}, {}, {}), shape_(shape), dtype_(dtype) {}

  // The value, for operations. Valid until the next read of another leaf, which may free this one.
  const Tensor& value() const {
    if (on_read_) on_read_();
    return value_;
  }
  // The value if it is here, else undefined.
  const Tensor& held_value() const { return value_; }
  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }
  // Replaces the value's memory. Undefined: frees the value.
  // REQUIRES: the shape and type of the first value.
  void set_value(Tensor value) {
    TANDEM_CHECK(!value.defined() || (value.shape() == shape_ && value.dtype() == dtype_))
        << name() << ": " << value.shape() << " in place of " << shape_;
    value_ = std::move(value);
  }
  // Called before each read of value or shadow. Brings a value that was freed.
  void set_on_read(std::function<void()> on_read) { on_read_ = std::move(on_read); }
  // Keeps a part of the value. The whole is a copy for operations from then on.
  void KeepPart(Part part) { value_part_ = std::move(part); }
  const Part& value_part() const { return value_part_; }
  // Elements [begin, begin + count) of the value, flat: of the part if there is one.
  // REQUIRES: they are here.
  Tensor ValueElements(int64_t begin, int64_t count) const {
    return ElementsOf(value_, value_part_, begin, count);
  }

  void BackwardInput(Context& context, const Tensor& gradient, Complete complete) override;
  Tensor GradientMemory(Context& context, Shape shape, DType dtype) override;
  bool OwnsMemory(const Tensor& gradient) const override {
    return storage_.defined() && gradient.raw() == storage_.raw();
  }

  // Sets the storage of the gradient, e.g. a place in a bucket. Without storage, the leaf keeps the
  // memory of the first gradient. GradientMemory lends the storage to the first producer that asks.
  void PlaceGradient(Tensor storage) { storage_ = std::move(storage); }
  // Like PlaceGradient, with storage that is made when a gradient first needs it.
  void PlaceGradientLater(std::function<Tensor()> make_storage) {
    make_storage_ = std::move(make_storage);
  }
  // Declares the storage to be the gradient, because the code that reduces the storage has filled
  // it.
  // REQUIRES: PlaceGradient or PlaceGradientLater.
  void AcceptStorage() {
    gradient_ = Storage();
    has_gradient_ = storage_lent_ = true;
  }
  // Takes `part` for the gradient's sum, and frees the storage of PlaceGradientLater. The next
  // gradient begins anew.
  void AcceptPart(Part part) {
    ClearGradient();
    storage_ = Tensor();
    gradient_part_ = std::move(part);
  }
  // A BF16 copy of a parameter's value for matrix products. The code that changes the value
  // refreshes the copy. Undefined in f32 runs.
  void set_shadow(Tensor shadow) { shadow_ = std::move(shadow); }
  // Read like `value`.
  const Tensor& shadow() const {
    if (on_read_) on_read_();
    return shadow_;
  }
  const Tensor& held_shadow() const { return shadow_; }
  void set_hook(Hook hook) { hook_ = std::move(hook); }

  bool has_gradient() const { return has_gradient_ || gradient_part_.elements.defined(); }
  // REQUIRES: has_gradient(), and not only a part.
  const Tensor& gradient() const { return gradient_; }
  // Elements [begin, begin + count) of the gradient, flat: of the part if there is one.
  // REQUIRES: has_gradient(), and the elements are here.
  Tensor GradientElements(int64_t begin, int64_t count) const {
    return ElementsOf(gradient_, gradient_part_, begin, count);
  }
  void ClearGradient() {
    has_gradient_ = false;
    storage_lent_ = false;
    gradient_ = Tensor();
    gradient_part_ = Part();
  }

 private:
  Tensor ElementsOf(const Tensor& whole, const Part& part, int64_t begin, int64_t count) const;
  // The storage, made if need be; undefined without storage.
  const Tensor& Storage() {
    if (!storage_.defined() && make_storage_) storage_ = make_storage_();
    return storage_;
  }

  const Shape shape_;
  const DType dtype_;
  Tensor value_;
  Part value_part_, gradient_part_;
  std::function<void()> on_read_;
  Tensor shadow_;
  Tensor storage_;
  std::function<Tensor()> make_storage_;
  Tensor gradient_;
  bool has_gradient_ = false;
  bool storage_lent_ = false;  // the storage holds the sum, or a gradient in flight to this leaf
  Hook hook_;
};

}  // namespace tandem
