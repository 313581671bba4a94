// A dense parameter: its logical name, the slice of it that this rank holds, its leaf, and what
// must be summed to complete its gradient. Parameters are made through a ParameterSet, whose order
// (the order of creation) is the order of buckets, states and files. Thread rule: one thread builds
// and uses a set.
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

// Mesh axes over which ranks hold partial sums of this gradient (a bit set): the record from which
// every reduction is derived. A parameter that is whole on every rank and sees a part of the batch
// is partial over DP.
enum PartialAxis : uint32_t { kPartialOverDp = 1, kPartialOverTp = 2, kPartialOverCp = 4 };

struct Parameter {
  std::string name;  // "blocks.0.attention.qkv.weight"
  ParameterSlice slice;
  Variable variable;  // the rank's array
  uint32_t partial_over = kPartialOverDp;
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

  Variable Normal(const std::string& name, const Shape& shape, double stddev) {
    return Normal(name, ParameterSlice(shape), stddev);
  }
  // Values in (-bound, bound).
  Variable Uniform(const std::string& name, const Shape& shape, double bound) {
    return Uniform(name, ParameterSlice(shape), bound);
  }
  Variable Constant(const std::string& name, const Shape& shape, double value) {
    return Constant(name, ParameterSlice(shape), value);
  }
  // The same for a parameter of which this rank holds a slice.
  Variable Normal(const std::string& name, const ParameterSlice& slice, double stddev);
  Variable Uniform(const std::string& name, const ParameterSlice& slice, double bound);
  Variable Constant(const std::string& name, const ParameterSlice& slice, double value);

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
  Variable Add(const std::string& name, const ParameterSlice& slice, const Tensor& value,
               bool decay);
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
