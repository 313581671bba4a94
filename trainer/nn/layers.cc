#include "trainer/nn/layers.h"

#include <cmath>

#include "kernels/base/random.h"

namespace tandem::nn {

namespace {

Variable InitialWeight(ParameterSet& parameters, const std::string& name, const ParameterPart& part,
                       const LinearOptions& options) {
  if (options.init == Init::NORMAL) return parameters.Normal(name, part, options.stddev);
  const auto in = static_cast<double>(part.slice.logical()[0]);
  return parameters.Uniform(name, part, 1 / std::sqrt(in));
}

// `in` is the number of inputs of the whole layer.
Variable InitialBias(ParameterSet& parameters, const std::string& name, int64_t in,
                     const ParameterPart& part, const LinearOptions& options) {
  if (!options.bias) return Variable();
  if (options.init == Init::NORMAL) return parameters.Constant(name, part, 0);
  return parameters.Uniform(name, part, 1 / std::sqrt(static_cast<double>(in)));
}

}  // namespace

PackedRows CutRows(Context& context, const PackedRows& rows, const TensorParallel* tp) {
  PackedRows cut = rows;
  if (tp != nullptr && tp->cuts_rows()) cut.stream_index = tp->NumbersHere(context, rows.row_index);
  return cut;
}

Linear::Linear(ParameterSet& parameters, const std::string& name, const ParameterPart& weight,
               const ParameterPart& bias, const LinearOptions& options)
    : weight_(InitialWeight(parameters, name + ".weight", weight, options)),
      bias_(InitialBias(parameters, name + ".bias", weight.slice.logical()[0], bias, options)) {}

Variable Linear::Forward(Context& context, const Variable& x) const {
  return ops::Linear(context, x, weight_, bias_);
}

Variable Linear::ForwardActivated(Context& context, const Variable& x,
                                  kernels::Activation activation) const {
  return ops::LinearActivate(context, x, weight_, bias_, activation);
}

Linear ColumnLinear(ParameterSet& parameters, const std::string& name, int64_t in, int64_t out,
                    const Columns& columns, const LinearOptions& options,
                    const TensorParallel* tp) {
  return Linear(parameters, name, CutPart(Shape{in, out}, 1, columns.kept, tp, columns.holders),
                CutPart(Shape{out}, 0, columns.kept, tp, columns.holders), options);
}

RowLinear::RowLinear(ParameterSet& parameters, const std::string& name, int64_t in, int64_t out,
                     const LinearOptions& options, const TensorParallel* tp)
    : linear_(parameters, name, CutPart(Shape{in, out}, 0, {PartOf(in, tp)}, tp),
              StreamPart(Shape{out}, tp), options),
      tp_(tp) {}

Variable RowLinear::Forward(Context& context, const Variable& x) const {
  if (tp_ == nullptr) return linear_.Forward(context, x);
  const Variable partial = ops::Linear(context, x, linear_.weight(), Variable());
  const Variable sum = tp_->Leave(context, partial);
  return linear_.bias().defined() ? ops::AddBias(context, sum, linear_.bias()) : sum;
}

Norm::Norm(ParameterSet& parameters, const std::string& name, int64_t dim,
           const NormOptions& options, const TensorParallel* tp)
    : options_(options),
      gamma_(parameters.Constant(name + ".gamma", StreamPart(Shape{dim}, tp), 1)) {
  if (options.kind == NormKind::LAYER && options.bias)
    beta_ = parameters.Constant(name + ".beta", StreamPart(Shape{dim}, tp), 0);
}

ops::Normed Norm::Forward(Context& context, const ops::Residual& rows) const {
  return options_.kind == NormKind::LAYER
             ? ops::LayerNorm(context, rows, gamma_, beta_, options_.epsilon)
             : ops::RmsNorm(context, rows, gamma_, options_.epsilon);
}

Dropout::Dropout(const std::string& name, float probability)
    : operation_(StableHash(name)), probability_(probability) {}

Variable Dropout::Forward(Context& context, const Variable& x, const PackedRows& rows) const {
  return ops::Dropout(context, x, rows.of_stream(), probability_, operation_);
}

}  // namespace tandem::nn
