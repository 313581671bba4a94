#include "trainer/optim/dense_optimizer.h"

#include "kernels/optimizer.h"
#include "kernels/reduce.h"

namespace tandem::optim {

std::vector<std::string> DenseOptimizer::slot_names() const {
  switch (options_.kind) {
    case Kind::SGD: return {};
    case Kind::ADAGRAD: return {"accumulator"};
    case Kind::ADAM:
    case Kind::ADAMW: return {"m", "v"};
  }
  return {};
}

DenseOptimizer::DenseOptimizer(const DenseOptions& options, ParameterSet* parameters)
    : options_(options), parameters_(parameters) {
  for (const auto& parameter : parameters_->all()) {
    std::vector<Tensor> slots;
    for (size_t i = 0; i < slot_names().size(); ++i) {
      slots.push_back(Tensor::Zeros(parameter->shape, parameters_->dtype()));
    }
    slots_.push_back(std::move(slots));
  }
}

namespace {

template <class T>
void UpdateOne(const DenseOptions& options, const Parameter& parameter, const std::vector<Tensor>& slots,
               uint64_t step, double learning_rate, double scale) {
  T* weight = parameter.variable.value().data<T>();
  const T* gradient = parameter.variable.leaf().gradient().data<T>();
  const int64_t n = parameter.shape.num_elements();
  const double decay = parameter.decay ? options.weight_decay : 0;
  switch (options.kind) {
    case Kind::SGD:
      return kernels::SgdUpdate(weight, gradient, n,
                                {.learning_rate = learning_rate, .weight_decay = decay, .gradient_scale = scale});
    case Kind::ADAGRAD:
      return kernels::AdagradUpdate(
          weight, slots[0].data<T>(), gradient, n,
          {.learning_rate = learning_rate, .epsilon = options.epsilon, .gradient_scale = scale});
    case Kind::ADAM:
    case Kind::ADAMW:
      return kernels::AdamUpdate(weight, slots[0].data<T>(), slots[1].data<T>(), gradient, n,
                                 {.learning_rate = learning_rate, .beta1 = options.beta1, .beta2 = options.beta2,
                                  .epsilon = options.epsilon,
                                  .weight_decay = options.kind == Kind::ADAMW ? decay : 0,
                                  .gradient_scale = scale, .step = step});
  }
}

}  // namespace

void DenseOptimizer::Update(uint64_t step, double learning_rate, double gradient_scale) {
  const auto& all = parameters_->all();
  for (size_t i = 0; i < all.size(); ++i) {
    if (!all[i]->variable.leaf().has_gradient()) continue;
    if (parameters_->dtype() == DType::F64) {
      UpdateOne<double>(options_, *all[i], slots_[i], step, learning_rate, gradient_scale);
    } else {
      UpdateOne<float>(options_, *all[i], slots_[i], step, learning_rate, gradient_scale);
    }
  }
}

double DenseOptimizer::GradientSquaredNorm(Stream& stream) const {
  double sum = 0;
  for (const auto& parameter : parameters_->all()) {
    const LeafNode& leaf = parameter->variable.leaf();
    if (leaf.has_gradient()) sum += kernels::SumOfSquares(leaf.gradient().view(), stream);
  }
  return sum;
}

absl::uint128 DenseOptimizer::Hash() const {
  absl::uint128 sum = 0;
  const auto& all = parameters_->all();
  for (size_t i = 0; i < all.size(); ++i) {
    sum += HashTensor(all[i]->name, 0, all[i]->variable.value());
    for (size_t s = 0; s < slots_[i].size(); ++s) {
      sum += HashTensor(all[i]->name, static_cast<uint32_t>(s) + 1, slots_[i][s]);
    }
  }
  return sum;
}

}  // namespace tandem::optim
