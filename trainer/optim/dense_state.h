// The state of dense parameters as checkpoints and params_hash see it: values and optimizer slots,
// by parameter. A replica holds the entries of the parameters that it updates. An owner elsewhere
// adds the other entries (parallel::GradientSync).
// Thread rule: the step's thread.
// Invariant: tensors are shared with their giver, not copied.
#pragma once

#include <string>
#include <vector>

#include "absl/numeric/int128.h"
#include "trainer/autograd/parameter.h"

namespace tandem::optim {

struct DenseState {
  struct Entry {
    Tensor value;               // undefined: another owner has the entry
    std::vector<Tensor> slots;  // in the order of slot_names
  };

  const ParameterSet* parameters = nullptr;
  std::vector<std::string> slot_names;  // "m", "v"; "accumulator"
  std::vector<Entry> entries;           // by parameter, in the set's order

  // Returns the share of params_hash of the entries that are here.
  absl::uint128 Hash() const;
};

}  // namespace tandem::optim
