// Where the state of each dense parameter lives: its value, the sum of its gradients and its optimizer slots. Neither the model nor the
// optimizer asks; GradientSync stands between.
// Thread rule: values and pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/autograd/parameter.h"

namespace tandem::parallel {

enum class Placement : uint8_t {
  REPLICATED,  // on every replica, which all make the same update
  SERVED,      // on parameter servers; a replica has a copy of the value
};

// By parameter, in the order of their set.
using Placements = std::vector<Placement>;

// The parameters that are placed so, in order.
inline std::vector<Parameter*> PlacedAs(const ParameterSet& parameters, const Placements& placements, Placement placement) {
  std::vector<Parameter*> found;
  for (size_t i = 0; i < placements.size(); ++i) {
    if (placements[i] == placement) found.push_back(parameters.all()[i].get());
  }
  return found;
}

}  // namespace tandem::parallel
