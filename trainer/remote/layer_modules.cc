#include "trainer/remote/layer_modules.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "trainer/autograd/ops/ops.h"
#include "trainer/remote/frame.h"
#include "trainer/sparse/pooling.h"

namespace tandem::remote {

namespace {

constexpr int64_t kMaxWidth = 1 << 20;
constexpr int64_t kMaxRows = int64_t{1} << 32;
constexpr int64_t kMaxElements = int64_t{1} << 33;  // limit for one parameter

using Outputs = absl::StatusOr<std::vector<Variable>>;

absl::Status CheckInputs(absl::Span<const Variable> inputs, size_t least, size_t most) {
  if (inputs.size() >= least && inputs.size() <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(inputs.size(), " inputs, ", least,
                                                 least == most ? "" : absl::StrCat(" to ", most),
                                                 " wanted"));
}

absl::Status CheckSize(int64_t rows, int64_t dim) {
  if (rows <= kMaxElements / dim) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(rows, " by ", dim, " elements, at most ", kMaxElements));
}

// Checks that x is [..., in] of the parameters' type.
absl::Status CheckRows(const Variable& x, const Variable& weight) {
  const bool fits = x.shape().num_dims() >= 1 && x.shape()[-1] == weight.shape()[0] &&
                    x.dtype() == weight.dtype();
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the input is no ", NameOf(weight.dtype()),
                                                 " array whose last extent is ",
                                                 weight.shape()[0]));
}

absl::Status CheckIndex(const Tensor& index, int64_t rows) {
  if (index.dtype() != DType::I64 || index.shape().num_dims() != 1)
    return absl::InvalidArgumentError("an index is i64 [R]");
  for (int64_t i = 0; i < index.num_elements(); ++i) {
    const int64_t row = index.data<int64_t>()[i];
    if (row < 0 || row >= rows) {
      return absl::InvalidArgumentError(
          absl::StrCat("index ", row, " at place ", i, " of a table of ", rows, " rows"));
    }
  }
  return absl::OkStatus();
}

void AddLinear(ParameterSet& parameters, const std::string& prefix, int64_t in, int64_t out,
               bool bias) {
  const double bound = 1 / std::sqrt(static_cast<double>(in));
  parameters.Uniform(prefix + "weight", Shape{in, out}, bound);
  if (bias) parameters.Uniform(prefix + "bias", Shape{out}, bound);
}

class LinearModule : public Module {
 public:
  Outputs Forward(Frame& frame, absl::Span<const Variable> parameters,
                  absl::Span<const Variable> inputs) override {
    RETURN_IF_ERROR(CheckInputs(inputs, 1, 1));
    RETURN_IF_ERROR(CheckRows(inputs[0], parameters[0]));
    return std::vector<Variable>{ops::Linear(frame.context(), inputs[0], parameters[0],
                                             parameters.size() > 1 ? parameters[1] : Variable())};
  }
};

class MlpModule : public Module {
 public:
  explicit MlpModule(kernels::Activation activation) : activation_(activation) {}
  Outputs Forward(Frame& frame, absl::Span<const Variable> parameters,
                  absl::Span<const Variable> inputs) override {
    RETURN_IF_ERROR(CheckInputs(inputs, 1, 1));
    RETURN_IF_ERROR(CheckRows(inputs[0], parameters[0]));
    Variable x = inputs[0];
    for (size_t i = 0; i < parameters.size(); i += 2) {
      const bool last = i + 2 == parameters.size();
      x = last ? ops::Linear(frame.context(), x, parameters[i], parameters[i + 1])
               : ops::LinearActivate(frame.context(), x, parameters[i], parameters[i + 1],
                                     activation_);
    }
    return std::vector<Variable>{x};
  }

 private:
  const kernels::Activation activation_;
};

class EmbeddingModule : public Module {
 public:
  Outputs Forward(Frame& frame, absl::Span<const Variable> parameters,
                  absl::Span<const Variable> inputs) override {
    RETURN_IF_ERROR(CheckInputs(inputs, 1, 1));
    RETURN_IF_ERROR(CheckIndex(inputs[0].value(), parameters[0].shape()[0]));
    return std::vector<Variable>{
        ops::GatherRows(frame.context(), parameters[0], inputs[0].value())};
  }
};

class EmbeddingBagModule : public Module {
 public:
  explicit EmbeddingBagModule(ps::Pooling pooling) : pooling_(pooling) {}
  Outputs Forward(Frame& frame, absl::Span<const Variable> parameters,
                  absl::Span<const Variable> inputs) override {
    RETURN_IF_ERROR(CheckInputs(inputs, 2, 3));
    const Tensor& index = inputs[0].value();
    RETURN_IF_ERROR(CheckIndex(index, parameters[0].shape()[0]));
    RETURN_IF_ERROR(sparse::CheckOffsets(inputs[1].value(), index.dim(0)));
    const Tensor weights = inputs.size() > 2 ? inputs[2].value() : Tensor();
    if (weights.defined() &&
        (weights.shape() != index.shape() || weights.dtype() != parameters[0].dtype())) {
      return absl::InvalidArgumentError(
          "a bag's weights are as many as its ids, of the table's type");
    }
    return std::vector<Variable>{sparse::PoolRows(frame.context(), parameters[0],
                                                  {index, inputs[1].value(), weights}, pooling_)};
  }

 private:
  const ps::Pooling pooling_;
};

class ParameterModule : public Module {
 public:
  Outputs Forward(Frame&, absl::Span<const Variable> parameters,
                  absl::Span<const Variable> inputs) override {
    RETURN_IF_ERROR(CheckInputs(inputs, 0, 0));
    return std::vector<Variable>{parameters[0]};
  }
};

using Made = absl::StatusOr<std::unique_ptr<Module>>;

Made MakeLinear(ModuleArguments& arguments, ParameterSet& parameters) {
  const int64_t in = arguments.Integer("in", 1, kMaxWidth),
                out = arguments.Integer("out", 1, kMaxWidth);
  const bool bias = arguments.Integer("bias", 0, 1, 1) == 1;
  RETURN_IF_ERROR(arguments.status());
  RETURN_IF_ERROR(CheckSize(in, out));
  AddLinear(parameters, "", in, out, bias);
  return std::make_unique<LinearModule>();
}

Made MakeMlp(ModuleArguments& arguments, ParameterSet& parameters) {
  const std::vector<int64_t> sizes = arguments.Integers("sizes", 1, kMaxWidth);
  const int activation = arguments.Choice("activation", {"relu", "gelu"});
  RETURN_IF_ERROR(arguments.status());
  if (sizes.size() < 2 || sizes.size() > 64)
    return absl::InvalidArgumentError("argument sizes names 2 to 64 widths");
  for (size_t i = 0; i + 1 < sizes.size(); ++i) RETURN_IF_ERROR(CheckSize(sizes[i], sizes[i + 1]));
  for (size_t i = 0; i + 1 < sizes.size(); ++i)
    AddLinear(parameters, absl::StrCat(i, "."), sizes[i], sizes[i + 1], true);
  return std::make_unique<MlpModule>(activation == 0 ? kernels::Activation::RELU
                                                     : kernels::Activation::GELU);
}

absl::Status AddTable(ModuleArguments& arguments, ParameterSet& parameters) {
  const int64_t rows = arguments.Integer("rows", 1, kMaxRows),
                dim = arguments.Integer("dim", 1, 65536);
  const double stddev = arguments.Number("stddev", 1);
  RETURN_IF_ERROR(arguments.status());
  RETURN_IF_ERROR(CheckSize(rows, dim));
  parameters.Normal("weight", Shape{rows, dim}, stddev);
  return absl::OkStatus();
}

Made MakeEmbedding(ModuleArguments& arguments, ParameterSet& parameters) {
  RETURN_IF_ERROR(AddTable(arguments, parameters));
  return std::make_unique<EmbeddingModule>();
}

Made MakeEmbeddingBag(ModuleArguments& arguments, ParameterSet& parameters) {
  const int pooling = arguments.Choice("pooling", {"sum", "mean", "sqrtn"});
  RETURN_IF_ERROR(AddTable(arguments, parameters));
  return std::make_unique<EmbeddingBagModule>(static_cast<ps::Pooling>(pooling));
}

Made MakeParameter(ModuleArguments& arguments, ParameterSet& parameters) {
  const std::vector<int64_t> extents = arguments.Integers("shape", 1, kMaxElements);
  const double stddev = arguments.Number("stddev", 1);
  RETURN_IF_ERROR(arguments.status());
  if (extents.size() > 2)
    return absl::InvalidArgumentError("argument shape names one or two extents");
  if (extents.size() == 2) RETURN_IF_ERROR(CheckSize(extents[0], extents[1]));
  parameters.Normal(
      "value", extents.size() == 1 ? Shape{extents[0]} : Shape{extents[0], extents[1]}, stddev);
  return std::make_unique<ParameterModule>();
}

}  // namespace

void AddLayers(ModuleRegistry& registry) {
  registry.Add("Linear", MakeLinear);
  registry.Add("MLP", MakeMlp);
  registry.Add("Embedding", MakeEmbedding);
  registry.Add("EmbeddingBag", MakeEmbeddingBag);
  registry.Add("Parameter", MakeParameter);
}

}  // namespace tandem::remote
