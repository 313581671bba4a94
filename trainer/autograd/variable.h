// A tensor and the node that receives its gradient. Without a node, the variable is a constant.
// Cheap to copy.
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
    return Variable(std::move(value), std::make_shared<LeafNode>(std::move(name)));
  }

  bool defined() const { return value_.defined(); }
  const Tensor& value() const { return value_; }
  const Shape& shape() const { return value_.shape(); }
  DType dtype() const { return value_.dtype(); }
  bool requires_gradient() const { return node_ != nullptr; }
  const std::shared_ptr<Node>& node() const { return node_; }
  // REQUIRES: made by Leaf.
  LeafNode& leaf() const {
    auto* leaf = dynamic_cast<LeafNode*>(node_.get());
    TANDEM_CHECK(leaf != nullptr) << "not a leaf";
    return *leaf;
  }

 private:
  Tensor value_;
  std::shared_ptr<Node> node_;
};

}  // namespace tandem
