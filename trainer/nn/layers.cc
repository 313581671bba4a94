#include "trainer/nn/layers.h"

#include <cmath>
#include <cstring>

#include "kernels/attention.h"
#include "kernels/base/random.h"

namespace tandem::nn {

namespace {

Variable InitialWeight(ParameterSet& parameters, const std::string& name,
                       const ParameterSlice& slice, const LinearOptions& options) {
  if (options.init == Init::NORMAL) return parameters.Normal(name, slice, options.stddev);
  return parameters.Uniform(name, slice, 1 / std::sqrt(static_cast<double>(slice.logical()[0])));
}

// `in` is the number of inputs of the whole layer.
Variable InitialBias(ParameterSet& parameters, const std::string& name, int64_t in,
                     const ParameterSlice& slice, const LinearOptions& options) {
  if (!options.bias) return Variable();
  if (options.init == Init::NORMAL) return parameters.Constant(name, slice, 0);
  return parameters.Uniform(name, slice, 1 / std::sqrt(static_cast<double>(in)));
}

// The slice of [rows, columns] with the columns `kept`; all columns without `tp`.
ParameterSlice Columns(int64_t rows, int64_t columns, const std::vector<IndexRange>& kept,
                       const TensorParallel* tp) {
  const Shape shape{rows, columns};
  return tp == nullptr ? ParameterSlice(shape) : ParameterSlice(shape, 1, kept);
}

ParameterSlice Elements(int64_t count, const std::vector<IndexRange>& kept,
                        const TensorParallel* tp) {
  return tp == nullptr ? ParameterSlice(Shape{count}) : ParameterSlice(Shape{count}, 0, kept);
}

ParameterSlice Rows(int64_t rows, int64_t columns, const TensorParallel* tp) {
  const Shape shape{rows, columns};
  return tp == nullptr ? ParameterSlice(shape) : ParameterSlice(shape, 0, {tp->PartOf(rows)});
}

IndexRange PartOf(int64_t count, const TensorParallel* tp) {
  return tp == nullptr ? IndexRange{0, count} : tp->PartOf(count);
}

// The columns of [queries | keys | values] of some heads.
std::vector<IndexRange> ColumnsOfHeads(const BlockOptions& options, const IndexRange& heads) {
  const int64_t width = options.dim / options.heads;
  std::vector<IndexRange> columns;
  for (int64_t part = 0; part < 3; ++part) {
    const int64_t begin = part * options.dim;
    columns.push_back({begin + heads.begin * width, begin + heads.end * width});
  }
  return columns;
}

Variable EnterCut(Context& context, const Variable& x, const TensorParallel* tp) {
  return tp == nullptr ? x : tp->Enter(context, x);
}

}  // namespace

Linear::Linear(ParameterSet& parameters, const std::string& name, const ParameterSlice& weight,
               const ParameterSlice& bias, const LinearOptions& options)
    : weight_(InitialWeight(parameters, name + ".weight", weight, options)),
      bias_(InitialBias(parameters, name + ".bias", weight.logical()[0], bias, options)) {}

RowLinear::RowLinear(ParameterSet& parameters, const std::string& name, int64_t in, int64_t out,
                     const LinearOptions& options, const TensorParallel* tp)
    : linear_(parameters, name, Rows(in, out, tp), ParameterSlice(Shape{out}), options), tp_(tp) {}

Variable RowLinear::Forward(Context& context, const Variable& x) const {
  if (tp_ == nullptr) return linear_.Forward(context, x);
  const Variable partial = ops::Linear(context, x, linear_.weight(), Variable());
  const Variable sum = tp_->Leave(context, partial);
  return linear_.bias().defined() ? ops::AddBias(context, sum, linear_.bias()) : sum;
}

Variable Linear::Forward(Context& context, const Variable& x) const {
  return ops::Linear(context, x, weight_, bias_);
}

Variable Linear::ForwardActivated(Context& context, const Variable& x,
                                  kernels::Activation activation) const {
  return ops::LinearActivate(context, x, weight_, bias_, activation);
}

LayerNorm::LayerNorm(ParameterSet& parameters, const std::string& name, int64_t dim, double epsilon,
                     bool bias)
    : gamma_(parameters.Constant(name + ".gamma", Shape{dim}, 1)),
      beta_(bias ? parameters.Constant(name + ".beta", Shape{dim}, 0) : Variable()),
      epsilon_(epsilon) {}

Variable LayerNorm::Forward(Context& context, const Variable& x) const {
  return ops::LayerNorm(context, x, gamma_, beta_, epsilon_);
}

ops::Normed LayerNorm::Forward(Context& context, const ops::Residual& rows) const {
  return ops::LayerNorm(context, rows, gamma_, beta_, epsilon_);
}

RmsNorm::RmsNorm(ParameterSet& parameters, const std::string& name, int64_t dim, double epsilon)
    : gamma_(parameters.Constant(name + ".gamma", Shape{dim}, 1)), epsilon_(epsilon) {}

Variable RmsNorm::Forward(Context& context, const Variable& x) const {
  return ops::RmsNorm(context, x, gamma_, epsilon_);
}

ops::Normed RmsNorm::Forward(Context& context, const ops::Residual& rows) const {
  return ops::RmsNorm(context, rows, gamma_, epsilon_);
}

Dropout::Dropout(const std::string& name, float probability)
    : operation_(StableHash(name)), probability_(probability) {}

Variable Dropout::Forward(Context& context, const Variable& x, const PackedRows& rows) const {
  return ops::Dropout(context, x, rows.row_index, probability_, operation_);
}

void KeyValueCache::Append(const Tensor& qkv) {
  const int64_t count = qkv.dim(0);
  TANDEM_CHECK_LE(length_ + count, keys_.dim(0));
  TANDEM_CHECK(qkv.dtype() == keys_.dtype() && qkv.dim(1) == 3 * keys_.dim(1)) << qkv.shape();
  const size_t width = static_cast<size_t>(keys_.dim(1)) * SizeOf(keys_.dtype());
  const auto* from = static_cast<const char*>(qkv.raw());
  auto* key = static_cast<char*>(keys_.raw()) + length_ * width;
  auto* value = static_cast<char*>(values_.raw()) + length_ * width;
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(key + i * width, from + (3 * i + 1) * width, width);
    std::memcpy(value + i * width, from + (3 * i + 2) * width, width);
  }
  length_ += count;
}

SelfAttention::SelfAttention(ParameterSet& parameters, const std::string& name,
                             const BlockOptions& options)
    : options_(options),
      heads_(PartOf(options.heads, options.tp)),
      scale_(options.attention_scale > 0
                 ? options.attention_scale
                 : 1.0 / std::sqrt(static_cast<double>(options.dim / options.heads))),
      qkv_(parameters, name + ".qkv",
           Columns(options.dim, 3 * options.dim, ColumnsOfHeads(options, heads_), options.tp),
           Elements(3 * options.dim, ColumnsOfHeads(options, heads_), options.tp), options.qkv),
      output_(parameters, name + ".output", options.dim, options.dim, options.residual, options.tp),
      operation_(StableHash(name + ".dropout")) {
  TANDEM_CHECK_EQ(options.dim % options.heads, 0);
}

Variable SelfAttention::Forward(Context& context, const Variable& x, const PackedRows& rows) const {
  const Variable qkv = qkv_.Forward(context, EnterCut(context, x, options_.tp));
  const Variable mixed = ops::SelfAttention(context, qkv, rows.offsets, rows.row_index,
                                            {.heads = heads_.size(),
                                             .first_head = heads_.begin,
                                             .all_heads = options_.heads,
                                             .max_length = rows.max_length,
                                             .causal = options_.causal,
                                             .scale = scale_,
                                             .dropout = options_.dropout,
                                             .operation = operation_});
  return output_.Forward(context, mixed);
}

Variable SelfAttention::Extend(Context& context, const Variable& x, KeyValueCache& cache) const {
  TANDEM_CHECK(options_.causal && !context.training() && options_.tp == nullptr);
  const int64_t tokens = x.shape()[0], heads = options_.heads, dim = options_.dim / heads;
  const Tensor qkv = qkv_.Forward(context, x).value();
  cache.Append(qkv);
  const Tensor output = Tensor::Empty(Shape{tokens, options_.dim}, qkv.dtype());
  const Shape cached{cache.length(), heads, dim};
  const ArrayView result = output.Reshape(Shape{tokens, heads, dim}).view();
  kernels::CachedAttention(
      {.q = ArrayView(qkv.raw(), qkv.dtype(), result.shape, Shape{3 * heads * dim, dim, 1}),
       .k = cache.keys().Reshape(cached).view(),
       .v = cache.values().Reshape(cached).view(),
       .output = result,
       .scale = scale_},
      context.stream());
  return output_.Forward(context, Variable::Constant(output));
}

FeedForward::FeedForward(ParameterSet& parameters, const std::string& name,
                         const BlockOptions& options)
    : activation_(options.activation),
      tp_(options.tp),
      up_(parameters, name + ".up",
          Columns(options.dim, options.ffn_dim, {PartOf(options.ffn_dim, tp_)}, tp_),
          Elements(options.ffn_dim, {PartOf(options.ffn_dim, tp_)}, tp_), options.up),
      down_(parameters, name + ".down", options.ffn_dim, options.dim, options.residual, tp_) {}

Variable FeedForward::Forward(Context& context, const Variable& x) const {
  const Variable entered = EnterCut(context, x, tp_);
  return down_.Forward(context, up_.ForwardActivated(context, entered, activation_));
}

PostNormBlock::PostNormBlock(ParameterSet& parameters, const std::string& name,
                             const BlockOptions& options)
    : attention_(parameters, name + ".attention", options),
      attention_dropout_(name + ".attention_dropout", options.dropout),
      attention_norm_(parameters, name + ".attention_norm", options.dim, options.norm_epsilon,
                      options.norm_bias),
      ffn_(parameters, name + ".ffn", options),
      ffn_dropout_(name + ".ffn_dropout", options.dropout),
      ffn_norm_(parameters, name + ".ffn_norm", options.dim, options.norm_epsilon,
                options.norm_bias) {}

Variable PostNormBlock::Forward(Context& context, const Variable& x, const PackedRows& rows) const {
  const Variable attended = attention_.Forward(context, x, rows);
  const Variable hidden =
      attention_norm_.Forward(context, attention_dropout_.Onto(x, attended, rows)).output;
  return ffn_norm_.Forward(context, ffn_dropout_.Onto(hidden, ffn_.Forward(context, hidden), rows))
      .output;
}

PreNormBlock::PreNormBlock(ParameterSet& parameters, const std::string& name,
                           const BlockOptions& options)
    : attention_norm_(parameters, name + ".attention_norm", options.dim, options.norm_epsilon,
                      options.norm_bias),
      attention_(parameters, name + ".attention", options),
      attention_dropout_(name + ".attention_dropout", options.dropout),
      ffn_norm_(parameters, name + ".ffn_norm", options.dim, options.norm_epsilon,
                options.norm_bias),
      ffn_(parameters, name + ".ffn", options),
      ffn_dropout_(name + ".ffn_dropout", options.dropout) {}

ops::Residual PreNormBlock::Forward(Context& context, const ops::Residual& x,
                                    const PackedRows& rows) const {
  const auto [sum, normed] = attention_norm_.Forward(context, x);
  return Finish(context, sum, attention_.Forward(context, normed, rows), rows);
}

ops::Residual PreNormBlock::Extend(Context& context, const ops::Residual& x,
                                   KeyValueCache& cache) const {
  const auto [sum, normed] = attention_norm_.Forward(context, x);
  // Dropout is the identity here, so the places of the rows do not matter.
  return Finish(context, sum, attention_.Extend(context, normed, cache), PackedRows());
}

ops::Residual PreNormBlock::Finish(Context& context, const Variable& x, const Variable& attended,
                                   const PackedRows& rows) const {
  const auto [sum, normed] = ffn_norm_.Forward(context, attention_dropout_.Onto(x, attended, rows));
  return ffn_dropout_.Onto(sum, ffn_.Forward(context, normed), rows);
}

}  // namespace tandem::nn
