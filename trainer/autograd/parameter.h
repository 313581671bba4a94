// A dense parameter: its logical name, the slice of it that this rank holds, its leaf, and the
// record of what must be summed to complete its gradient. Parameters are made through a
// ParameterSet, whose order (the order of creation) is the order of buckets, states and files.
// Thread rule: one thread builds and uses a set.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/numeric/int128.h"
#include "absl/status/status.h"
#include "trainer/autograd/parameter_slice.h"
#include "trainer/autograd/variable.h"

namespace tandem {

// Which ranks hold the same elements of a parameter, and whose gradients are parts of one sum.
// Every reduction is derived from the record: sums over replicas and over tensor-parallel ranks,
// and who counts an element in norms, hashes and files.
struct GradientRecord {
  // Neighbouring tensor-parallel ranks that hold the same elements: 1 for a cut parameter, all for
  // a whole one, in between for copies of keys' and values' heads. 0: the model has not said.
  int holders = 0;
  // Each holder has the gradient of its own rows or heads. False: holders have equal gradients.
  bool partial_over_tp = false;
  // Each replica has the gradient of its part of the batch.
  bool partial_over_dp = true;

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

  const Shape& shape() const { return variable.shape(); }  // of the rank's array
  int64_t num_elements() const { return shape().num_elements(); }
};

class ParameterSet {
 public:
  // Initial values are a function of (seed, name, element): layout, order and device never enter.
  // Parameters lie on the device of `stream` (null: in the host's memory), which outlives the set.
  ParameterSet(uint64_t seed, DType dtype, Stream* stream = nullptr)
      : seed_(seed), dtype_(dtype), stream_(stream) {}

  Variable Normal(const std::string& name, const ParameterPart& part, double stddev);
  // Values in (-bound, bound).
  Variable Uniform(const std::string& name, const ParameterPart& part, double bound);
  Variable Constant(const std::string& name, const ParameterPart& part, double value);

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
  void ClearGradients();
  // Gives the leaf of every matrix a BF16 shadow of its value, on a CUDA device that of every
  // vector too. Whoever changes values later refreshes them: an optimizer as it writes, everybody
  // else (a checkpoint was loaded) by RefreshShadows. REQUIRES: F32 parameters.
  void MakeShadows(Stream& stream);
  // Computes all shadows anew; nothing to do where there are none.
  void RefreshShadows(Stream& stream);

 private:
  Variable Add(const std::string& name, const ParameterPart& part, const Tensor& value, bool decay);
  // Makes an array of `slice` whose elements are value(logical element).
  template <class Value>
  Tensor Fill(const ParameterSlice& slice, const Value& value) const;

  const uint64_t seed_;
  const DType dtype_;
  Stream* const stream_;
  std::vector<std::unique_ptr<Parameter>> parameters_;
};

// The share of params_hash of a whole tensor: `slot` 0 is the weight, 1, 2, ... the optimizer's
// slots.
absl::uint128 HashTensor(const std::string& parameter_name, uint32_t slot, const Tensor& tensor);
// The share of `elements`, which are the rank's elements begin, begin + 1, ... of a parameter.
absl::uint128 HashElements(const Parameter& parameter, uint32_t slot, const Tensor& elements,
                           int64_t begin);

}  // namespace tandem
