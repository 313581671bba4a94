#include "trainer/remote/hosted_module.h"

#include <algorithm>
#include <utility>

namespace tandem::remote {

int HostedModule::PlaceOf(const std::string& parameter) const {
  const auto& all = made_.parameters->all();
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i]->name == parameter) return static_cast<int>(i);
  }
  return -1;
}

HostedModule::Leaves HostedModule::Snapshot() {
  Leaves leaves;
  absl::MutexLock lock(&mutex_);
  for (const auto& parameter : made_.parameters->all()) {
    leaves.parameters.push_back(Variable::Leaf(parameter->variable.value(), parameter->name));
  }
  const auto token = std::make_shared<char>();
  holders_.insert(token.get());
  leaves.hold = std::shared_ptr<void>(token.get(), [token, self = shared_from_this()](void*) {
    absl::MutexLock lock(&self->mutex_);
    self->holders_.erase(token.get());
  });
  return leaves;
}

std::vector<Tensor> HostedModule::Fetch() {
  std::vector<Tensor> values;
  absl::MutexLock lock(&mutex_);
  for (const auto& parameter : made_.parameters->all())
    values.push_back(parameter->variable.value().Clone());
  return values;
}

std::unique_ptr<optim::DenseOptimizer> HostedModule::MakeOptimizer(
    const optim::DenseOptions& options) {
  absl::MutexLock lock(&mutex_);
  return std::make_unique<optim::DenseOptimizer>(options, made_.parameters.get());
}

void HostedModule::Apply(optim::DenseOptimizer& optimizer, uint64_t step,
                         const std::vector<Tensor>& gradients, double learning_rate,
                         double gradient_scale, Stream& stream) {
  absl::MutexLock lock(&mutex_);
  const auto& all = made_.parameters->all();
  for (size_t i = 0; i < all.size(); ++i) {
    if (!gradients[i].defined()) continue;
    LeafNode& leaf = all[i]->variable.leaf();
    if (!holders_.empty()) leaf.set_value(leaf.value().Clone());
    leaf.PlaceGradient(gradients[i]);
    leaf.AcceptStorage();
  }
  optimizer.Update(step, learning_rate, gradient_scale, stream);
  for (const auto& parameter : all) {
    parameter->variable.leaf().ClearGradient();
    parameter->variable.leaf().PlaceGradient(Tensor());
  }
}

void HostedOptimizer::Add(std::shared_ptr<HostedModule> module, size_t place) {
  const auto found = std::find_if(parts_.begin(), parts_.end(),
                                  [&](const Part& part) { return part.module == module; });
  if (found != parts_.end()) {
    found->places.insert(place);
    return;
  }
  auto optimizer = module->MakeOptimizer(options_);
  parts_.push_back({std::move(module), {place}, std::move(optimizer)});
}

uint64_t HostedOptimizer::Step(ModuleGradients& gradients, double learning_rate,
                               double gradient_scale, Stream& stream) {
  absl::MutexLock lock(&mutex_);
  ++steps_;
  uint64_t updated = 0;
  for (const Part& part : parts_) {
    const auto found = gradients.find(part.module.get());
    if (found == gradients.end()) continue;
    std::vector<Tensor> taken(found->second.size());
    for (const size_t place : part.places) {
      updated += found->second[place].defined();
      taken[place] = std::exchange(found->second[place], Tensor());
    }
    part.module->Apply(*part.optimizer, steps_, taken, learning_rate, gradient_scale, stream);
  }
  return updated;
}

}  // namespace tandem::remote
