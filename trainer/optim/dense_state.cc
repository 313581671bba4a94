#include "trainer/optim/dense_state.h"

namespace tandem::optim {

absl::uint128 DenseState::Hash() const {
  absl::uint128 sum = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (!entries[i].value.defined()) continue;
    const std::string& name = parameters->all()[i]->name;
    sum += HashTensor(name, 0, parameters->ToHost(entries[i].value));
    for (size_t s = 0; s < entries[i].slots.size(); ++s) {
      sum +=
          HashTensor(name, static_cast<uint32_t>(s) + 1, parameters->ToHost(entries[i].slots[s]));
    }
  }
  return sum;
}

}  // namespace tandem::optim
