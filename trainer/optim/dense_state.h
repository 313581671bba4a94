// The state of dense parameters as checkpoints and params_hash see it: values and optimizer slots,
// by parameter. A rank holds the entries of what it updates: whole parameters, or ranges of their
// elements. An owner elsewhere adds the other entries (parallel::GradientSync).
// Thread rule: the step's thread.
// Invariant: tensors are shared with their giver, not copied.
#pragma once

#include <string>
#include <vector>

#include "absl/numeric/int128.h"
#include "trainer/autograd/parameter.h"

namespace tandem::optim {

// Elements [begin, begin + count) of the rank's array of a parameter.
struct ElementRange {
  Parameter* parameter = nullptr;
  int64_t begin = 0, count = 0;
  // False if another rank, with the same elements, counts them in norms and writes them to files.
  bool counted = true;
};
// The whole arrays of the parameters.
std::vector<ElementRange> WholeArrays(const std::vector<Parameter*>& parameters);

// A parameter as files know it, whatever part of it a rank holds.
struct LogicalParameter {
  std::string name;
  Shape shape;
};
std::vector<LogicalParameter> LogicalParametersOf(const ParameterSet& parameters);

struct DenseState {
  struct Entry {
    int64_t begin = 0;          // of the rank's array of the parameter
    Tensor value;               // undefined: another owner has the entry
    std::vector<Tensor> slots;  // in the order of slot_names; each as many elements as `value`
  };

  const ParameterSet* parameters = nullptr;
  std::vector<std::string> slot_names;  // "m", "v"; "accumulator"
  std::vector<Entry> entries;           // by parameter, in the set's order

  // Returns the number of elements here, of values and slots.
  int64_t num_elements() const;

  // Returns the share of params_hash of the entries that are here.
  absl::uint128 Hash() const;
};

}  // namespace tandem::optim
