#include "trainer/autograd/parameter.h"

#include <cstring>

#include "kernels/base/params_hash.h"
#include "kernels/base/random.h"
#include "kernels/cast.h"
#include "kernels/elementwise.h"

namespace tandem {

Variable ParameterSet::Add(const std::string& name, const Tensor& value, bool decay) {
  for (const auto& parameter : parameters_)
    TANDEM_CHECK(parameter->name != name) << name << " exists already";
  auto parameter = std::make_unique<Parameter>();
  parameter->name = name;
  parameter->shape = value.shape();
  parameter->variable = Variable::Leaf(Place(value), name);
  parameter->decay = decay;
  parameters_.push_back(std::move(parameter));
  return parameters_.back()->variable;
}

Variable ParameterSet::Normal(const std::string& name, Shape shape, double stddev) {
  Tensor value = Tensor::Empty(shape, dtype_);
  const RandomKey key{seed_, StableHash(name)};
  for (int64_t i = 0; i < value.num_elements(); ++i) {
    value.Set(i, stddev * RandomNormal(key, 0, static_cast<uint64_t>(i)));
  }
  return Add(name, value, shape.num_dims() >= 2);
}

Variable ParameterSet::Uniform(const std::string& name, Shape shape, double bound) {
  Tensor value = Tensor::Empty(shape, dtype_);
  const RandomKey key{seed_, StableHash(name)};
  for (int64_t i = 0; i < value.num_elements(); ++i) {
    value.Set(i, bound * (2.0 * UnitFloat(RandomBits(key, 0, static_cast<uint64_t>(i))) - 1));
  }
  return Add(name, value, shape.num_dims() >= 2);
}

Variable ParameterSet::Constant(const std::string& name, Shape shape, double value) {
  Tensor tensor = Tensor::Empty(shape, dtype_);
  for (int64_t i = 0; i < tensor.num_elements(); ++i) tensor.Set(i, value);
  return Add(name, tensor, /*decay=*/false);
}

std::vector<Parameter*> ParameterSet::pointers() const {
  std::vector<Parameter*> pointers;
  for (const auto& parameter : parameters_) pointers.push_back(parameter.get());
  return pointers;
}

int64_t ParameterSet::num_elements() const {
  int64_t n = 0;
  for (const auto& parameter : parameters_) n += parameter->shape.num_elements();
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
  for (const auto& parameter : parameters_) {
    // A GPU's product adds a bias of its result's type at no cost; a CPU's adds any F32 one, which
    // keeps all its bits.
    if (parameter->shape.num_dims() < 2 && !device().is_cuda()) continue;
    parameter->variable.leaf().set_shadow(Tensor::Empty(parameter->shape, DType::BF16, device()));
  }
  RefreshShadows(stream);
}

void ParameterSet::RefreshShadows(Stream& stream) {
  for (const auto& parameter : parameters_) {
    const Tensor& shadow = parameter->variable.leaf().shadow();
    if (shadow.defined()) kernels::Cast(shadow.view(), parameter->variable.value().view(), stream);
  }
}

absl::uint128 HashTensor(const std::string& parameter_name, uint32_t slot, const Tensor& tensor) {
  TANDEM_CHECK(!tensor.device().is_cuda());
  const uint64_t owner = DenseOwner(parameter_name);
  const size_t size = SizeOf(tensor.dtype());
  const auto* bytes = static_cast<const char*>(tensor.raw());
  absl::uint128 sum = 0;
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    uint64_t bits = 0;
    std::memcpy(&bits, bytes + i * size, size);
    sum += HashScalar(owner, slot, static_cast<uint64_t>(i), bits);
  }
  return sum;
}

}  // namespace tandem
