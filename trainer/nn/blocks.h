// Blocks of a Transformer: attention and a feed-forward network (FFN) around a residual stream.
// Thread rule: that of the block's parameters.
#pragma once

#include <string>

#include "trainer/nn/attention.h"

namespace tandem::nn {

// down(activation(up(x))), or down(silu(gate(x)) up(x)).
class FeedForward {
 public:
  FeedForward(ParameterSet& parameters, const std::string& name, const BlockOptions& options);
  // x: the rows of the residual stream here.
  Variable Forward(Context& context, const Variable& x, const PackedRows& rows) const;

 private:
  BlockOptions options_;
  Linear up_;  // gated: [gate | up]
  RowLinear down_;
};

// The post-norm Transformer block of Vaswani et al. 2017:
// x = Norm(x + Drop(Attention(x))); x = Norm(x + Drop(FFN(x))).
class PostNormBlock {
 public:
  PostNormBlock(ParameterSet& parameters, const std::string& name, const BlockOptions& options);
  Variable Forward(Context& context, const Variable& x, const PackedRows& rows) const;

 private:
  SelfAttention attention_;
  Dropout attention_dropout_;
  Norm attention_norm_;
  FeedForward ffn_;
  Dropout ffn_dropout_;
  Norm ffn_norm_;
};

// The pre-norm block of Radford et al. 2019:
// x = x + Drop(Attention(Norm(x))); x = x + Drop(FFN(Norm(x))).
// The norm of the next layer computes the last sum; a model ends with a norm of its own.
class PreNormBlock {
 public:
  PreNormBlock(ParameterSet& parameters, const std::string& name, const BlockOptions& options);
  ops::Residual Forward(Context& context, const ops::Residual& x, const PackedRows& rows) const;
  // Like SelfAttention::Extend.
  ops::Residual Extend(Context& context, const ops::Residual& x, KeyValueCache& cache) const;
  KeyValueCache MakeCache(int64_t max_length) const { return attention_.MakeCache(max_length); }

 private:
  // The rest of the block after attention, whose output is `attended`.
  ops::Residual Finish(Context& context, const Variable& x, const Variable& attended,
                       const PackedRows& rows) const;

  Norm attention_norm_;
  SelfAttention attention_;
  Dropout attention_dropout_;
  Norm ffn_norm_;
  FeedForward ffn_;
  Dropout ffn_dropout_;
};

}  // namespace tandem::nn
