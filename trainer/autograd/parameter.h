// A dense parameter: its logical name, the slice of it that this rank holds, its leaf, and the
// record of what must be summed to complete its gradient. Parameters are made through a
// ParameterSet, whose order (the order of creation) is the order of buckets, states and files.
// Thread rule: one thread builds and uses a set.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/numeric/int128.h"
#include "absl/status/status.h"
#include "trainer/autograd/parameter_slice.h"
#include "trainer/autograd/variable.h"

namespace tandem {

// Which ranks hold the same elements of a parameter, and whose gradients are parts of one sum.
// Every reduction is derived from the record: sums over replicas, over tensor-parallel ranks and
// over stages, and who counts an element in norms, hashes and files.
struct GradientRecord {
  // Neighbouring tensor-parallel ranks that hold the same elements: 1 for a cut parameter, all for
  // a whole one, in between for copies of keys' and values' heads. 0: the model has not said.
  int holders = 0;
  // Each holder has the gradient of its own rows or heads. False: holders have equal gradients.
  bool partial_over_tp = false;
  // Each replica has the gradient of its part of the batch.
  bool partial_over_dp = true;
  // A pipeline's first and last stage hold the same elements, and each has the gradient of its use.
  bool tied_over_pp = false;

  bool operator==(const GradientRecord&) const = default;
};

// A rank's part of a parameter. Made of a shape, the whole parameter without a record.
struct ParameterPart {
  ParameterPart(const Shape& logical) : slice(logical) {}  // NOLINT: a shape is a part
  ParameterPart(ParameterSlice slice, GradientRecord record = {})
      : slice(std::move(slice)), record(record) {}

  ParameterSlice slice;
  GradientRecord record;
};

struct Parameter {
  std::string name;  // "blocks.0.attention.qkv.weight"
  ParameterSlice slice;
  GradientRecord record;
  Variable variable;  // the rank's array
  bool decay = true;  // weight decay applies (matrices; not biases and norms)
  int block = 0;      // ParameterSet::NextBlock
  std::function<double(uint64_t element)> initial;  // of the logical elements

  const Shape& shape() const { return variable.shape(); }  // of the rank's array
  int64_t num_elements() const { return shape().num_elements(); }
};

class ParameterSet {
 public:
  // Initial values are a function of (seed, name, element): layout, order and device never enter.
  // Parameters lie on the device of `stream` (null: in the host's memory), which outlives the set.
  // Without `has_values`, parameters are made without values. Whoever keeps parts of values then
  // calls InitialElements.
  ParameterSet(uint64_t seed, DType dtype, Stream* stream = nullptr, bool has_values = true)
      : seed_(seed), dtype_(dtype), stream_(stream), has_values_(has_values) {}

  Variable Normal(const std::string& name, const ParameterPart& part, double stddev);
  // Values in (-bound, bound).
  Variable Uniform(const std::string& name, const ParameterPart& part, double bound);
  Variable Constant(const std::string& name, const ParameterPart& part, double value);
  // Begins a block of the model. A step uses a block's parameters together, one block after the
  // other, so they may be gathered and freed together (ZeRO stage 3).
  void NextBlock() { ++block_; }

  DType dtype() const { return dtype_; }
  const std::vector<std::unique_ptr<Parameter>>& all() const { return parameters_; }
  // Returns all parameters, for functions that also work on a part.
  std::vector<Parameter*> pointers() const;
  int64_t num_elements() const;  // logical, of all parameters
  Device device() const { return stream_ == nullptr ? Device{} : stream_->device(); }
  // The same elements where the parameters lie, and back in the host's memory.
  Tensor Place(const Tensor& tensor) const {
    return stream_ == nullptr ? tensor : tensor.To(stream_->device(), *stream_);
  }
  Tensor ToHost(const Tensor& tensor) const {
    return stream_ == nullptr ? tensor : tensor.ToHost(*stream_);
  }
  // The first error of the device that the parameters lie on: what ToHost gave may be wrong then.
  absl::Status status() const { return stream_ == nullptr ? absl::OkStatus() : stream_->status(); }
  // The elements of `from`, in the host's memory, become those of `to`, where the parameters lie.
  void Assign(const Tensor& to, const Tensor& from) const;
  // Initial values of elements begin .. begin + count - 1 of the rank's array, flat, where the
  // parameters lie.
  Tensor InitialElements(const Parameter& parameter, int64_t begin, int64_t count) const;
  void ClearGradients();
  // Gives the leaf of every matrix a BF16 shadow of its value, on a CUDA device that of every
  // vector too. Whoever changes values later refreshes them: an optimizer as it writes, everybody
  // else (a checkpoint was loaded) by RefreshShadows. REQUIRES: F32 parameters.
  void MakeShadows(Stream& stream);
  // Computes the shadows of all values that are here, or of one; nothing without MakeShadows.
  void RefreshShadows(Stream& stream);
  void RefreshShadow(const Parameter& parameter, Stream& stream) const;

 private:
  Variable Add(const std::string& name, const ParameterPart& part,
               std::function<double(uint64_t element)> initial, bool decay);

  const uint64_t seed_;
  const DType dtype_;
  Stream* const stream_;
  const bool has_values_;
  bool has_shadows_ = false;
  int block_ = 0;
  std::vector<std::unique_ptr<Parameter>> parameters_;
};

// The share of params_hash of a whole tensor: `slot` 0 is the weight, 1, 2, ... the optimizer's
// slots.
absl::uint128 HashTensor(const std::string& parameter_name, uint32_t slot, const Tensor& tensor);
// The share of `elements`, which are the rank's elements begin, begin + 1, ... of a parameter.
absl::uint128 HashElements(const Parameter& parameter, uint32_t slot, const Tensor& elements,
                           int64_t begin);

}  // namespace tandem
