#include "trainer/nn/blocks.h"

#include <vector>

namespace tandem::nn {

namespace {

std::vector<IndexRange> HiddenColumns(const BlockOptions& options) {
  const IndexRange part = PartOf(options.ffn_dim, options.tp);
  if (!options.gated) return {part};
  return {part, {options.ffn_dim + part.begin, options.ffn_dim + part.end}};
}

}  // namespace

FeedForward::FeedForward(ParameterSet& parameters, const std::string& name,
                         const BlockOptions& options)
    : options_(options),
      up_(ColumnLinear(parameters, name + (options.gated ? ".gate_up" : ".up"), options.dim,
                       (options.gated ? 2 : 1) * options.ffn_dim, {HiddenColumns(options)},
                       options.up, options.tp)),
      down_(parameters, name + ".down", options.ffn_dim, options.dim, options.residual,
            options.tp) {}

Variable FeedForward::Forward(Context& context, const Variable& x, const PackedRows& rows) const {
  const Variable all = EnterCut(context, x, rows, options_.tp);
  return down_.Forward(context, options_.gated
                                    ? ops::SwiGlu(context, up_.Forward(context, all))
                                    : up_.ForwardActivated(context, all, options_.activation));
}

PostNormBlock::PostNormBlock(ParameterSet& parameters, const std::string& name,
                             const BlockOptions& options)
    : attention_(parameters, name + ".attention", options),
      attention_dropout_(name + ".attention_dropout", options.dropout),
      attention_norm_(parameters, name + ".attention_norm", options.dim, options.norm, options.tp),
      ffn_(parameters, name + ".ffn", options),
      ffn_dropout_(name + ".ffn_dropout", options.dropout),
      ffn_norm_(parameters, name + ".ffn_norm", options.dim, options.norm, options.tp) {}

Variable PostNormBlock::Forward(Context& context, const Variable& x, const PackedRows& rows) const {
  const Variable attended = attention_.Forward(context, x, rows);
  const Variable hidden =
      attention_norm_.Forward(context, attention_dropout_.Onto(x, attended, rows)).output;
  const Variable fed = ffn_.Forward(context, hidden, rows);
  return ffn_norm_.Forward(context, ffn_dropout_.Onto(hidden, fed, rows)).output;
}

PreNormBlock::PreNormBlock(ParameterSet& parameters, const std::string& name,
                           const BlockOptions& options)
    : attention_norm_(parameters, name + ".attention_norm", options.dim, options.norm, options.tp),
      attention_(parameters, name + ".attention", options),
      attention_dropout_(name + ".attention_dropout", options.dropout),
      ffn_norm_(parameters, name + ".ffn_norm", options.dim, options.norm, options.tp),
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
  return ffn_dropout_.Onto(sum, ffn_.Forward(context, normed, rows), rows);
}

}  // namespace tandem::nn
