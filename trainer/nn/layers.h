// Layers of a Transformer over packed rows: each owns parameters under its own name and has one Forward.
// Thread rule: as their parameters.
#pragma once

#include <string>

#include "trainer/autograd/ops/ops.h"
#include "trainer/autograd/parameter.h"

namespace tandem::nn {

// Where the rows of a packed batch stand: what positions, dropout masks and attention need to know about a batch.
struct PackedRows {
  Tensor offsets;    // i64 [samples + 1]: rows of sample s are offsets[s] .. offsets[s + 1] - 1
  Tensor positions;  // i64 [T], below max_length
  Tensor row_index;  // i64 [T]: (sample of the global batch) * max_length + position
  int64_t max_length = 0;
};

// [..., in] -> [..., out]. Weight [in, out] starts N(0, stddev), bias 0.
class Linear {
 public:
  Linear(ParameterSet& parameters, const std::string& name, int64_t in, int64_t out, double stddev);
  Variable Forward(Context& context, const Variable& x) const;

 private:
  Variable weight_, bias_;
};

class LayerNorm {
 public:
  LayerNorm(ParameterSet& parameters, const std::string& name, int64_t dim, double epsilon);
  Variable Forward(Context& context, const Variable& x) const;

 private:
  Variable gamma_, beta_;
  double epsilon_;
};

class RmsNorm {
 public:
  RmsNorm(ParameterSet& parameters, const std::string& name, int64_t dim, double epsilon);
  Variable Forward(Context& context, const Variable& x) const;

 private:
  Variable gamma_;
  double epsilon_;
};

class Dropout {
 public:
  // `name` names the random stream: two dropouts of a model never share one.
  Dropout(const std::string& name, float probability);
  Variable Forward(Context& context, const Variable& x, const PackedRows& rows) const;

 private:
  uint64_t operation_;
  float probability_;
};

struct BlockOptions {
  int64_t dim = 64, heads = 2, ffn_dim = 256;
  kernels::Activation activation = kernels::Activation::GELU;
  float dropout = 0;  // attention probabilities, and after the attention's and the FFN's output
  double norm_epsilon = 1e-12;
  double init_stddev = 0.02;
  bool causal = true;
};

// Causal self-attention with biases on all projections.
class SelfAttention {
 public:
  SelfAttention(ParameterSet& parameters, const std::string& name, const BlockOptions& options);
  Variable Forward(Context& context, const Variable& x, const PackedRows& rows) const;

 private:
  BlockOptions options_;
  Linear qkv_, output_;
  uint64_t operation_;
};

// The post-norm Transformer block of Vaswani et al. 2017: x = Norm(x + Drop(Attention(x))); x = Norm(x + Drop(FFN(x))).
class PostNormBlock {
 public:
  PostNormBlock(ParameterSet& parameters, const std::string& name, const BlockOptions& options);
  Variable Forward(Context& context, const Variable& x, const PackedRows& rows) const;

 private:
  SelfAttention attention_;
  Dropout attention_dropout_;
  LayerNorm attention_norm_;
  kernels::Activation activation_;
  Linear up_, down_;
  Dropout ffn_dropout_;
  LayerNorm ffn_norm_;
};

}  // namespace tandem::nn
