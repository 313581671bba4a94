// The place of each dense parameter's state: its value, the sum of its gradients and its optimizer
// slots. Neither the model nor the optimizer depends on the place, because GradientSync stands
// between.
// Thread rule: values and pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/autograd/parameter.h"

namespace tandem::parallel {

enum class Placement : uint8_t {
  REPLICATED,  // on every replica; all make the same update
  SERVED,      // on parameter servers; a replica has a copy of the value
};

// Placements by parameter, in the order of the ParameterSet.
using Placements = std::vector<Placement>;

// Returns the parameters with this placement, in order.
inline std::vector<Parameter*> PlacedAs(const ParameterSet& parameters,
                                        const Placements& placements, Placement placement) {
  std::vector<Parameter*> found;
  for (size_t i = 0; i < placements.size(); ++i) {
    if (placements[i] == placement) found.push_back(parameters.all()[i].get());
  }
  return found;
}

}  // namespace tandem::parallel
