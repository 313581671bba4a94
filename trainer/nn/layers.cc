#include "trainer/nn/layers.h"

#include <cmath>

#include "kernels/base/random.h"

namespace tandem::nn {

Linear::Linear(ParameterSet& parameters, const std::string& name, int64_t in, int64_t out, double stddev)
    : weight_(parameters.Normal(name + ".weight", Shape{in, out}, stddev)),
      bias_(parameters.Constant(name + ".bias", Shape{out}, 0)) {}

Variable Linear::Forward(Context& context, const Variable& x) const { return ops::Linear(context, x, weight_, bias_); }

LayerNorm::LayerNorm(ParameterSet& parameters, const std::string& name, int64_t dim, double epsilon)
    : gamma_(parameters.Constant(name + ".gamma", Shape{dim}, 1)),
      beta_(parameters.Constant(name + ".beta", Shape{dim}, 0)),
      epsilon_(epsilon) {}

Variable LayerNorm::Forward(Context& context, const Variable& x) const {
  return ops::LayerNorm(context, x, gamma_, beta_, epsilon_);
}

RmsNorm::RmsNorm(ParameterSet& parameters, const std::string& name, int64_t dim, double epsilon)
    : gamma_(parameters.Constant(name + ".gamma", Shape{dim}, 1)), epsilon_(epsilon) {}

Variable RmsNorm::Forward(Context& context, const Variable& x) const {
  return ops::RmsNorm(context, x, gamma_, epsilon_);
}

Dropout::Dropout(const std::string& name, float probability)
    : operation_(StableHash(name)), probability_(probability) {}

Variable Dropout::Forward(Context& context, const Variable& x, const PackedRows& rows) const {
  return ops::Dropout(context, x, rows.row_index, probability_, operation_);
}

SelfAttention::SelfAttention(ParameterSet& parameters, const std::string& name, const BlockOptions& options)
    : options_(options),
      qkv_(parameters, name + ".qkv", options.dim, 3 * options.dim, options.init_stddev),
      output_(parameters, name + ".output", options.dim, options.dim, options.init_stddev),
      operation_(StableHash(name + ".dropout")) {
  TANDEM_CHECK_EQ(options.dim % options.heads, 0);
}

Variable SelfAttention::Forward(Context& context, const Variable& x, const PackedRows& rows) const {
  const double scale = 1.0 / std::sqrt(static_cast<double>(options_.dim / options_.heads));
  const Variable mixed = ops::SelfAttention(context, qkv_.Forward(context, x), rows.offsets, rows.row_index,
                                            {.heads = options_.heads,
                                             .max_length = rows.max_length,
                                             .causal = options_.causal,
                                             .scale = scale,
                                             .dropout = options_.dropout,
                                             .operation = operation_});
  return output_.Forward(context, mixed);
}

PostNormBlock::PostNormBlock(ParameterSet& parameters, const std::string& name, const BlockOptions& options)
    : attention_(parameters, name + ".attention", options),
      attention_dropout_(name + ".attention_dropout", options.dropout),
      attention_norm_(parameters, name + ".attention_norm", options.dim, options.norm_epsilon),
      activation_(options.activation),
      up_(parameters, name + ".ffn.up", options.dim, options.ffn_dim, options.init_stddev),
      down_(parameters, name + ".ffn.down", options.ffn_dim, options.dim, options.init_stddev),
      ffn_dropout_(name + ".ffn_dropout", options.dropout),
      ffn_norm_(parameters, name + ".ffn_norm", options.dim, options.norm_epsilon) {}

Variable PostNormBlock::Forward(Context& context, const Variable& x, const PackedRows& rows) const {
  const Variable attended = attention_dropout_.Forward(context, attention_.Forward(context, x, rows), rows);
  const Variable hidden = attention_norm_.Forward(context, ops::Add(context, x, attended));
  const Variable inner = ops::Activate(context, up_.Forward(context, hidden), activation_);
  const Variable fed = ffn_dropout_.Forward(context, down_.Forward(context, inner), rows);
  return ffn_norm_.Forward(context, ops::Add(context, hidden, fed));
}

}  // namespace tandem::nn
