// Layers of a Transformer over packed rows. Each layer owns parameters under its own name and has
// one Forward.
// Thread rule: that of the layer's parameters.
#pragma once

#include <string>

#include "trainer/autograd/ops/ops.h"
#include "trainer/autograd/parameter.h"
#include "trainer/nn/tensor_parallel.h"

namespace tandem::nn {

// The places of the rows of a packed batch, for positions, dropout masks and attention.
struct PackedRows {
  Tensor offsets;    // i64 [samples + 1]: rows of sample s are offsets[s] .. offsets[s + 1] - 1
  Tensor positions;  // i64 [T], below max_length
  Tensor row_index;  // i64 [T]: (sample of the global batch) * max_length + position
  int64_t max_length = 0;

  PackedRows To(Device device, Stream& stream) const {
    return {offsets.To(device, stream), positions.To(device, stream), row_index.To(device, stream),
            max_length};
  }
};

// How a linear layer is initialised: weight N(0, stddev) and bias 0, or both U(+-1 / sqrt(inputs)).
enum class Init { NORMAL, UNIFORM_FAN_IN };

struct LinearOptions {
  bool bias = true;
  Init init = Init::NORMAL;
  double stddev = 0.02;  // NORMAL
};

// [..., in] -> [..., out]. Weight [in, out], bias [out].
class Linear {
 public:
  Linear(ParameterSet& parameters, const std::string& name, int64_t in, int64_t out,
         const LinearOptions& options)
      : Linear(parameters, name, ParameterSlice(Shape{in, out}), ParameterSlice(Shape{out}),
               options) {}
  // Holds slices of weight and bias.
  Linear(ParameterSet& parameters, const std::string& name, const ParameterSlice& weight,
         const ParameterSlice& bias, const LinearOptions& options);
  Variable Forward(Context& context, const Variable& x) const;
  Variable ForwardActivated(Context& context, const Variable& x,
                            kernels::Activation activation) const;

  const Variable& weight() const { return weight_; }
  const Variable& bias() const { return bias_; }  // undefined: none

 private:
  Variable weight_, bias_;
};

// A linear layer that is cut by rows: each rank has some of the inputs. The bias is added once, to
// the sum over ranks. `tp` null: the layer is whole.
class RowLinear {
 public:
  RowLinear(ParameterSet& parameters, const std::string& name, int64_t in, int64_t out,
            const LinearOptions& options, const TensorParallel* tp);
  Variable Forward(Context& context, const Variable& x) const;

 private:
  Linear linear_;
  const TensorParallel* tp_;
};

class LayerNorm {
 public:
  LayerNorm(ParameterSet& parameters, const std::string& name, int64_t dim, double epsilon,
            bool bias = true);
  Variable Forward(Context& context, const Variable& x) const;
  ops::Normed Forward(Context& context, const ops::Residual& rows) const;

 private:
  Variable gamma_, beta_;
  double epsilon_;
};

class RmsNorm {
 public:
  RmsNorm(ParameterSet& parameters, const std::string& name, int64_t dim, double epsilon);
  Variable Forward(Context& context, const Variable& x) const;
  ops::Normed Forward(Context& context, const ops::Residual& rows) const;

 private:
  Variable gamma_;
  double epsilon_;
};

class Dropout {
 public:
  // `name` names the random stream. REQUIRES: the dropouts of a model have different names.
  Dropout(const std::string& name, float probability);
  Variable Forward(Context& context, const Variable& x, const PackedRows& rows) const;
  // x + Drop(y), for the norm that follows.
  ops::Residual Onto(const Variable& x, const Variable& y, const PackedRows& rows) const {
    return {x, y, probability_, operation_, rows.row_index};
  }

 private:
  uint64_t operation_;
  float probability_;
};

struct BlockOptions {
  int64_t dim = 64, heads = 2, ffn_dim = 256;
  kernels::Activation activation = kernels::Activation::GELU;
  float dropout = 0;  // on attention probabilities and on the outputs of attention and FFN
  double norm_epsilon = 1e-12;
  bool norm_bias = true;
  LinearOptions qkv = {}, up = {};  // the first layers of attention and FFN
  LinearOptions residual = {};      // their last layers, whose output is added to the residual
  double attention_scale = 0;       // 0: 1 / sqrt(dim / heads)
  bool causal = true;
  // Cuts heads and the hidden layer of the FFN; null: whole layers. Outlives the block.
  const TensorParallel* tp = nullptr;
};

// The keys and values of one sequence's tokens so far, in one attention layer. The cache saves
// computing them again for the next token. Move-only, because a copy would share the memory.
class KeyValueCache {
 public:
  KeyValueCache(int64_t max_length, int64_t dim, DType dtype)
      : keys_(Tensor::Empty(Shape{max_length, dim}, dtype)),
        values_(Tensor::Empty(Shape{max_length, dim}, dtype)) {}

  KeyValueCache(KeyValueCache&&) = default;
  KeyValueCache& operator=(KeyValueCache&&) = default;

  // Appends n tokens. qkv is [n, 3 dim].
  // REQUIRES: n more tokens fit.
  void Append(const Tensor& qkv);
  void Clear() { length_ = 0; }

  int64_t length() const { return length_; }
  Tensor keys() const { return keys_.Rows(0, length_); }  // [length, dim]
  Tensor values() const { return values_.Rows(0, length_); }

 private:
  Tensor keys_, values_;  // [max_length, dim]
  int64_t length_ = 0;
};

// Multi-head self-attention. One projection computes queries, keys and values.
class SelfAttention {
 public:
  SelfAttention(ParameterSet& parameters, const std::string& name, const BlockOptions& options);
  Variable Forward(Context& context, const Variable& x, const PackedRows& rows) const;
  // Inference: x [n, dim] holds the tokens after the cached ones. Appends them to the cache.
  // REQUIRES: causal; the context is not training.
  Variable Extend(Context& context, const Variable& x, KeyValueCache& cache) const;

 private:
  BlockOptions options_;
  IndexRange heads_;  // this rank's
  double scale_;
  Linear qkv_;
  RowLinear output_;
  uint64_t operation_;
};

// down(activation(up(x))).
class FeedForward {
 public:
  FeedForward(ParameterSet& parameters, const std::string& name, const BlockOptions& options);
  Variable Forward(Context& context, const Variable& x) const;

 private:
  kernels::Activation activation_;
  const TensorParallel* tp_;
  Linear up_;
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
  LayerNorm attention_norm_;
  FeedForward ffn_;
  Dropout ffn_dropout_;
  LayerNorm ffn_norm_;
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

 private:
  // The rest of the block after attention, whose output is `attended`.
  ops::Residual Finish(Context& context, const Variable& x, const Variable& attended,
                       const PackedRows& rows) const;

  LayerNorm attention_norm_;
  SelfAttention attention_;
  Dropout attention_dropout_;
  LayerNorm ffn_norm_;
  FeedForward ffn_;
  Dropout ffn_dropout_;
};

}  // namespace tandem::nn
