#include "trainer/nn/attention.h"

#include <cmath>
#include <cstring>
#include <numeric>

#include "kernels/attention.h"
#include "kernels/base/random.h"

namespace tandem::nn {

namespace {

// With fewer heads of keys and values than ranks, neighbouring ranks have copies of one.
IndexRange KvHeadsOf(const BlockOptions& options) {
  const TensorParallel* const tp = options.tp;
  if (options.kv_heads == 0) return PartOf(options.heads, tp);
  if (tp == nullptr || options.kv_heads >= tp->size()) return PartOf(options.kv_heads, tp);
  const int64_t head = tp->rank() * options.kv_heads / tp->size();
  return {head, head + 1};
}

int HoldersOfKv(const BlockOptions& options) {
  if (options.tp == nullptr || options.kv_heads >= options.tp->size()) return 1;
  return options.tp->size() / static_cast<int>(options.kv_heads);
}

// The columns of some heads in each of `parts` arrays of `heads` heads, side by side.
std::vector<IndexRange> ColumnsOfHeads(int parts, int64_t heads, int64_t width,
                                       const IndexRange& kept) {
  std::vector<IndexRange> columns;
  for (int part = 0; part < parts; ++part) {
    const int64_t begin = part * heads * width;
    columns.push_back({begin + kept.begin * width, begin + kept.end * width});
  }
  return columns;
}

Linear MakeQuery(ParameterSet& parameters, const std::string& name, const BlockOptions& options,
                 const IndexRange& heads) {
  const bool fused = options.kv_heads == 0;
  const int parts = fused ? 3 : 1;
  const int64_t width = options.dim / options.heads;
  return ColumnLinear(parameters, name + (fused ? ".qkv" : ".query"), options.dim,
                      parts * options.dim, {ColumnsOfHeads(parts, options.heads, width, heads)},
                      options.qkv, options.tp);
}

}  // namespace

void KeyValueCache::Append(const Tensor& rows) {
  const int64_t count = rows.dim(0);
  TANDEM_CHECK_LE(length_ + count, keys_.dim(0));
  TANDEM_CHECK(rows.dtype() == keys_.dtype() && rows.dim(1) >= 2 * keys_.dim(1)) << rows.shape();
  const size_t size = SizeOf(keys_.dtype()), width = static_cast<size_t>(keys_.dim(1)) * size,
               stride = static_cast<size_t>(rows.dim(1)) * size;
  const auto* from = static_cast<const char*>(rows.raw()) + stride - 2 * width;
  auto* key = static_cast<char*>(keys_.raw()) + length_ * width;
  auto* value = static_cast<char*>(values_.raw()) + length_ * width;
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(key + i * width, from + i * stride, width);
    std::memcpy(value + i * width, from + i * stride + width, width);
  }
  length_ += count;
}

SelfAttention::SelfAttention(ParameterSet& parameters, const std::string& name,
                             const BlockOptions& options)
    : options_(options),
      heads_(PartOf(options.heads, options.tp)),
      kv_heads_(KvHeadsOf(options)),
      query_(MakeQuery(parameters, name, options, heads_)),
      key_value_(
          options.kv_heads == 0
              ? std::nullopt
              : std::make_optional(ColumnLinear(
                    parameters, name + ".key_value", options.dim, 2 * options.kv_heads * width(),
                    {ColumnsOfHeads(2, options.kv_heads, width(), kv_heads_), HoldersOfKv(options)},
                    options.qkv, options.tp))),
      output_(parameters, name + ".output", options.dim, options.dim, options.residual, options.tp),
      operation_(StableHash(name + ".dropout")) {
  TANDEM_CHECK_EQ(options.dim % options.heads, 0);
  TANDEM_CHECK(options.kv_heads == 0 || options.heads % options.kv_heads == 0) << options.kv_heads;
  if (options_.attention_scale == 0)
    options_.attention_scale = 1 / std::sqrt(static_cast<double>(width()));
}

SelfAttention::Projected SelfAttention::Project(Context& context, const Variable& x,
                                                const Tensor& positions) const {
  Variable queries = query_.Forward(context, x);
  Variable keys_values = key_value_.has_value() ? key_value_->Forward(context, x) : Variable();
  if (!options_.rotary.defined()) return {queries, keys_values};
  const ops::RotaryOptions turn{options_.rotary, positions};
  if (!keys_values.defined())
    return {ops::Rotate(context, queries, turn, 2 * heads_.size(), 3 * heads_.size()), {}};
  return {ops::Rotate(context, queries, turn, heads_.size(), heads_.size()),
          ops::Rotate(context, keys_values, turn, kv_heads_.size(), 2 * kv_heads_.size())};
}

ops::AttentionOptions SelfAttention::OptionsFor(const PackedRows& rows) const {
  return {.heads = heads_.size(),
          .kv_heads = kv_heads_.size(),
          .first_head = heads_.begin,
          .all_heads = options_.heads,
          .max_length = rows.max_length,
          .causal = options_.causal,
          .scale = options_.attention_scale,
          .dropout = options_.dropout,
          .operation = operation_};
}

Variable SelfAttention::Forward(Context& context, const Variable& x, const PackedRows& rows) const {
  const Variable all = EnterCut(context, x, rows, options_.tp);
  const auto [queries, keys_values] = Project(context, all, rows.positions);
  return output_.Forward(context, ops::SelfAttention(context, queries, keys_values, rows.offsets,
                                                     rows.row_index, OptionsFor(rows)));
}

Variable SelfAttention::Extend(Context& context, const Variable& x, KeyValueCache& cache) const {
  TANDEM_CHECK(options_.causal && !context.training() && options_.tp == nullptr);
  const int64_t tokens = x.shape()[0], heads = options_.heads;
  const Tensor positions = Tensor::Empty(Shape{tokens}, DType::I64);
  std::iota(positions.data<int64_t>(), positions.data<int64_t>() + tokens, cache.length());
  const auto [queries, keys_values] = Project(context, x, positions);
  const Tensor& q = queries.value();
  cache.Append(keys_values.defined() ? keys_values.value() : q);
  const Tensor output = Tensor::Empty(Shape{tokens, options_.dim}, q.dtype());
  const Shape cached{cache.length(), kv_heads_.size(), width()};
  const ArrayView result = output.Reshape(Shape{tokens, heads, width()}).view();
  kernels::CachedAttention(
      {.q = ArrayView(q.raw(), q.dtype(), result.shape, Shape{q.dim(1), width(), 1}),
       .k = cache.keys().Reshape(cached).view(),
       .v = cache.values().Reshape(cached).view(),
       .output = result,
       .scale = options_.attention_scale},
      context.stream());
  return output_.Forward(context, Variable::Constant(output));
}

KeyValueCache SelfAttention::MakeCache(int64_t max_length) const {
  return KeyValueCache(max_length, kv_heads_.size() * width(), query_.weight().dtype());
}

}  // namespace tandem::nn
