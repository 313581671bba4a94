// Self-attention over packed rows.
// Thread rule: that of the layer's parameters.
#pragma once

#include <optional>
#include <string>

#include "trainer/nn/layers.h"

namespace tandem::nn {

// The keys and values of one sequence's tokens so far, in one attention layer. The cache saves
// computing them again for the next token. Move-only, because a copy would share the memory.
class KeyValueCache {
 public:
  KeyValueCache(int64_t max_length, int64_t width, DType dtype)
      : keys_(Tensor::Empty(Shape{max_length, width}, dtype)),
        values_(Tensor::Empty(Shape{max_length, width}, dtype)) {}

  KeyValueCache(KeyValueCache&&) = default;
  KeyValueCache& operator=(KeyValueCache&&) = default;

  // Appends n tokens. The last 2 width columns of `rows` [n, ...] are keys and values.
  // REQUIRES: n more tokens fit.
  void Append(const Tensor& rows);
  void Clear() { length_ = 0; }

  int64_t length() const { return length_; }
  Tensor keys() const { return keys_.Rows(0, length_); }  // [length, width]
  Tensor values() const { return values_.Rows(0, length_); }

 private:
  Tensor keys_, values_;  // [max_length, width]
  int64_t length_ = 0;
};

class SelfAttention {
 public:
  SelfAttention(ParameterSet& parameters, const std::string& name, const BlockOptions& options);
  // x: the rows of the residual stream here.
  Variable Forward(Context& context, const Variable& x, const PackedRows& rows) const;
  // Inference: x [n, dim] holds the tokens after the cached ones. Appends them to the cache.
  // REQUIRES: causal; the context is not training; the layer is whole.
  Variable Extend(Context& context, const Variable& x, KeyValueCache& cache) const;
  KeyValueCache MakeCache(int64_t max_length) const;

 private:
  int64_t width() const { return options_.dim / options_.heads; }  // of a head
  // The projected rows: queries, and keys and values. One tensor holds both if there is one
  // projection.
  struct Projected {
    Variable queries, keys_values;
  };
  Projected Project(Context& context, const Variable& x, const Tensor& positions) const;
  ops::AttentionOptions OptionsFor(const PackedRows& rows) const;

  BlockOptions options_;
  IndexRange heads_, kv_heads_;  // this rank's
  Linear query_;                 // with one projection: of queries, keys and values
  std::optional<Linear> key_value_;
  RowLinear output_;
  uint64_t operation_;
};

}  // namespace tandem::nn
