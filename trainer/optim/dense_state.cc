#include "trainer/optim/dense_state.h"

namespace tandem::optim {

std::vector<LogicalParameter> LogicalParametersOf(const ParameterSet& parameters) {
  std::vector<LogicalParameter> logical;
  for (const auto& parameter : parameters.all())
    logical.push_back({parameter->name, parameter->slice.logical()});
  return logical;
}

std::vector<ElementRange> WholeArrays(const std::vector<Parameter*>& parameters) {
  std::vector<ElementRange> ranges;
  for (Parameter* const parameter : parameters)
    ranges.push_back({parameter, 0, parameter->num_elements()});
  return ranges;
}

int64_t DenseState::num_elements() const {
  int64_t sum = 0;
  for (const Entry& entry : entries) {
    if (entry.value.defined())
      sum += entry.value.num_elements() * (1 + static_cast<int64_t>(entry.slots.size()));
  }
  return sum;
}

absl::uint128 DenseState::Hash() const {
  absl::uint128 sum = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = entries[i];
    if (!entry.value.defined()) continue;
    const Parameter& parameter = *parameters->all()[i];
    sum += HashElements(parameter, 0, parameters->ToHost(entry.value), entry.begin);
    for (size_t s = 0; s < entry.slots.size(); ++s) {
      sum += HashElements(parameter, static_cast<uint32_t>(s) + 1,
                          parameters->ToHost(entry.slots[s]), entry.begin);
    }
  }
  return sum;
}

}  // namespace tandem::optim
