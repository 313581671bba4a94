// A tensor and the node that receives its gradient. Without a node, the variable is a constant. The
// value of a leaf lies in the leaf. Cheap to copy.
// Thread rule: a value.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "trainer/autograd/node.h"
#include "trainer/tensor/tensor.h"

namespace tandem {

class Variable {
 public:
  Variable() = default;
  Variable(Tensor value, std::shared_ptr<Node> node)
      : value_(std::move(value)), node_(std::move(node)) {}
  static Variable Constant(Tensor value) { return Variable(std::move(value), nullptr); }
  static Variable Leaf(Tensor value, std::string name) {
    return Leaf(std::make_shared<LeafNode>(std::move(name), std::move(value)));
  }
  static Variable Leaf(const std::shared_ptr<LeafNode>& leaf) {
    Variable variable(Tensor(), leaf);
    variable.leaf_ = leaf.get();
    return variable;
  }

  bool defined() const { return leaf_ != nullptr || value_.defined(); }
  const Tensor& value() const { return leaf_ != nullptr ? leaf_->value() : value_; }
  const Shape& shape() const { return leaf_ != nullptr ? leaf_->shape() : value_.shape(); }
  DType dtype() const { return leaf_ != nullptr ? leaf_->dtype() : value_.dtype(); }
  bool requires_gradient() const { return node_ != nullptr; }
  const std::shared_ptr<Node>& node() const { return node_; }
  bool is_leaf() const { return leaf_ != nullptr; }
  // REQUIRES: made by Leaf.
  LeafNode& leaf() const {
    TANDEM_CHECK(leaf_ != nullptr) << "not a leaf";
    return *leaf_;
  }

 private:
  Tensor value_;  // undefined for a leaf
  std::shared_ptr<Node> node_;
  LeafNode* leaf_ = nullptr;  // `node_`, if that is a leaf
};

}  // namespace tandem
