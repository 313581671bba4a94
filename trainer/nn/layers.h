// Layers over packed rows. Each layer owns parameters under its own name and has one Forward.
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
  // row_index of the rows of the residual stream here; undefined: all rows.
  Tensor stream_index = {};

  int64_t num_rows() const { return row_index.dim(0); }
  // The row numbers that the residual stream's dropouts take.
  const Tensor& of_stream() const { return stream_index.defined() ? stream_index : row_index; }
  PackedRows To(Device device, Stream& stream) const {
    return {offsets.To(device, stream), positions.To(device, stream), row_index.To(device, stream),
            max_length};
  }
};

// The same places, where `tp` cuts the rows of the residual stream; null: nobody does.
PackedRows CutRows(Context& context, const PackedRows& rows, const TensorParallel* tp);

// TensorParallel::Enter. In inference without `tp` nobody needs the rows.
inline Variable EnterCut(Context& context, const Variable& x, const PackedRows& rows,
                         const TensorParallel* tp) {
  return tp == nullptr ? x : tp->Enter(context, x, rows.num_rows());
}

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
      : Linear(parameters, name, Shape{in, out}, Shape{out}, options) {}
  // Holds parts of weight and bias.
  Linear(ParameterSet& parameters, const std::string& name, const ParameterPart& weight,
         const ParameterPart& bias, const LinearOptions& options);
  Variable Forward(Context& context, const Variable& x) const;
  Variable ForwardActivated(Context& context, const Variable& x,
                            kernels::Activation activation) const;

  const Variable& weight() const { return weight_; }
  const Variable& bias() const { return bias_; }  // undefined: none

 private:
  Variable weight_, bias_;
};

// The columns of a linear layer that a rank has. `holders` as in CutPart.
struct Columns {
  std::vector<IndexRange> kept;
  int holders = 1;
};
// A linear layer that is cut by columns: each rank has some of the outputs. `tp` null: all.
Linear ColumnLinear(ParameterSet& parameters, const std::string& name, int64_t in, int64_t out,
                    const Columns& columns, const LinearOptions& options, const TensorParallel* tp);

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

enum class NormKind { LAYER, RMS };  // kernels/norm.h

struct NormOptions {
  NormKind kind = NormKind::LAYER;
  double epsilon = 1e-12;
  bool bias = true;  // LAYER
};

// A norm of rows [..., dim] of the residual stream.
class Norm {
 public:
  Norm(ParameterSet& parameters, const std::string& name, int64_t dim, const NormOptions& options,
       const TensorParallel* tp = nullptr);
  Variable Forward(Context& context, const Variable& x) const {
    return Forward(context, ops::Residual{x}).output;
  }
  ops::Normed Forward(Context& context, const ops::Residual& rows) const;

 private:
  NormOptions options_;
  Variable gamma_, beta_;
};

// A Transformer block (blocks.h).
struct BlockOptions {
  int64_t dim = 64, heads = 2, ffn_dim = 256;
  // Heads of keys and values, each shared by heads / kv_heads heads of queries (Ainslie et al.
  // 2023), with a projection apart from the queries'. 0: as many as heads, and one projection.
  int64_t kv_heads = 0;
  // Turns queries and keys by their positions: ops::RotaryTable of dim / heads. Undefined: no turn.
  Tensor rotary = {};
  double attention_scale = 0;  // 0: 1 / sqrt(dim / heads)
  bool causal = true;
  // Multiplies the hidden layer of the FFN by silu of a second projection, its gate (SwiGLU:
  // Shazeer 2020), instead of activating it.
  bool gated = false;
  kernels::Activation activation = kernels::Activation::GELU;
  float dropout = 0;  // on attention probabilities and on the outputs of attention and FFN
  NormOptions norm = {};
  LinearOptions qkv = {}, up = {};  // the first layers of attention and FFN
  LinearOptions residual = {};      // their last layers, whose output is added to the residual
  // Cuts heads and the hidden layer of the FFN; null: whole layers. Outlives the block.
  const TensorParallel* tp = nullptr;
};

// Dropout of rows of the residual stream.
class Dropout {
 public:
  // `name` names the random stream. REQUIRES: the dropouts of a model have different names.
  Dropout(const std::string& name, float probability);
  Variable Forward(Context& context, const Variable& x, const PackedRows& rows) const;
  // x + Drop(y), for the norm that follows.
  ops::Residual Onto(const Variable& x, const Variable& y, const PackedRows& rows) const {
    return {x, y, probability_, operation_, rows.of_stream()};
  }

 private:
  uint64_t operation_;
  float probability_;
};

}  // namespace tandem::nn
