#include "trainer/autograd/parameter.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/base/params_hash.h"
#include "kernels/base/random.h"
#include "kernels/cast.h"
#include "kernels/elementwise.h"

namespace tandem {

namespace {

constexpr int64_t kInitialChunk = 1 << 16;  // elements of one task

}  // namespace

Variable ParameterSet::Add(const std::string& name, const ParameterPart& part,
                           std::function<double(uint64_t element)> initial, bool decay) {
  for (const auto& parameter : parameters_)
    TANDEM_CHECK(parameter->name != name) << name << " exists already";
  auto parameter = std::make_unique<Parameter>();
  parameter->name = name;
  parameter->slice = part.slice;
  parameter->record = part.record;
  const Shape shape = part.slice.local();
  parameter->variable = Variable::Leaf(std::make_shared<LeafNode>(name, shape, dtype_));
  parameter->decay = decay;
  parameter->block = block_;
  parameter->initial = std::move(initial);
  if (has_values_) {
    const Tensor value = InitialElements(*parameter, 0, shape.num_elements());
    parameter->variable.leaf().set_value(value.Reshape(shape));
  }
  parameters_.push_back(std::move(parameter));
  return parameters_.back()->variable;
}

Tensor ParameterSet::InitialElements(const Parameter& parameter, int64_t begin,
                                     int64_t count) const {
  const Tensor elements = Tensor::Empty(Shape{count}, dtype_);
  const auto fill = [&](int64_t chunk) {
    const int64_t first = begin + chunk * kInitialChunk,
                  last = std::min(first + kInitialChunk, begin + count);
    parameter.slice.ForEachRun(first, last, [&](int64_t local, int64_t logical, int64_t run) {
      for (int64_t i = 0; i < run; ++i)
        elements.Set(local - begin + i, parameter.initial(static_cast<uint64_t>(logical + i)));
    });
  };
  const int64_t num_chunks = (count + kInitialChunk - 1) / kInitialChunk;
  if (stream_ != nullptr) {
    stream_->pool().ParallelFor(num_chunks, fill);
  } else {
    for (int64_t chunk = 0; chunk < num_chunks; ++chunk) fill(chunk);
  }
  return Place(elements);
}

Variable ParameterSet::Normal(const std::string& name, const ParameterPart& part, double stddev) {
  const RandomKey key{seed_, StableHash(name)};
  const auto value = [key, stddev](uint64_t i) { return stddev * RandomNormal(key, 0, i); };
  return Add(name, part, value, part.slice.logical().num_dims() >= 2);
}

Variable ParameterSet::Uniform(const std::string& name, const ParameterPart& part, double bound) {
  const RandomKey key{seed_, StableHash(name)};
  const auto value = [key, bound](uint64_t i) {
    return bound * (2.0 * UnitFloat(RandomBits(key, 0, i)) - 1);
  };
  return Add(name, part, value, part.slice.logical().num_dims() >= 2);
}

Variable ParameterSet::Constant(const std::string& name, const ParameterPart& part, double value) {
  return Add(
      name, part, [value](uint64_t) { return value; }, /*decay=*/false);
}

std::vector<Parameter*> ParameterSet::pointers() const {
  std::vector<Parameter*> pointers;
  for (const auto& parameter : parameters_) pointers.push_back(parameter.get());
  return pointers;
}

int64_t ParameterSet::num_elements() const {
  int64_t n = 0;
  for (const auto& parameter : parameters_) n += parameter->slice.logical().num_elements();
  return n;
}

void ParameterSet::Assign(const Tensor& to, const Tensor& from) const {
  TANDEM_CHECK(to.shape() == from.shape() && to.dtype() == from.dtype())
      << to.shape() << " and " << from.shape();
  if (device().is_cuda())
    kernels::Copy(to.view(), Place(from).view(), *stream_);
  else
    std::memcpy(to.raw(), from.raw(), to.num_bytes());
}

void ParameterSet::ClearGradients() {
  for (const auto& parameter : parameters_) parameter->variable.leaf().ClearGradient();
}

void ParameterSet::MakeShadows(Stream& stream) {
  has_shadows_ = true;
  RefreshShadows(stream);
}

void ParameterSet::RefreshShadows(Stream& stream) {
  for (const auto& parameter : parameters_) RefreshShadow(*parameter, stream);
}

void ParameterSet::RefreshShadow(const Parameter& parameter, Stream& stream) const {
  // A GPU's product adds a bias of its result's type at no cost; a CPU's adds any F32 one, which
  // keeps all its bits.
  const bool wants_one = parameter.shape().num_dims() >= 2 || device().is_cuda();
  LeafNode& leaf = parameter.variable.leaf();
  if (!has_shadows_ || !wants_one || !leaf.held_value().defined()) return;
  if (!leaf.held_shadow().defined())
    leaf.set_shadow(Tensor::Empty(parameter.shape(), DType::BF16, device()));
  kernels::Cast(leaf.held_shadow().view(), leaf.held_value().view(), stream);
}

namespace {

absl::uint128 HashOf(uint64_t owner, uint32_t slot, const Tensor& elements,
                     const ParameterSlice& slice, int64_t begin) {
  TANDEM_CHECK(!elements.device().is_cuda());
  const size_t size = SizeOf(elements.dtype());
  const auto* bytes = static_cast<const char*>(elements.raw());
  absl::uint128 sum = 0;
  slice.ForEachRun(
      begin, begin + elements.num_elements(), [&](int64_t local, int64_t logical, int64_t count) {
        for (int64_t i = 0; i < count; ++i) {
          uint64_t bits = 0;
          std::memcpy(&bits, bytes + static_cast<size_t>(local - begin + i) * size, size);
          sum += HashScalar(owner, slot, static_cast<uint64_t>(logical + i), bits);
        }
      });
  return sum;
}

}  // namespace

absl::uint128 HashTensor(const std::string& parameter_name, uint32_t slot, const Tensor& tensor) {
  return HashOf(DenseOwner(parameter_name), slot, tensor, ParameterSlice(tensor.shape()), 0);
}

absl::uint128 HashElements(const Parameter& parameter, uint32_t slot, const Tensor& elements,
                           int64_t begin) {
  return HashOf(DenseOwner(parameter.name), slot, elements, parameter.slice, begin);
}

}  // namespace tandem
