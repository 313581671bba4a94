// The optimizer of a replica's dense parameters. One update takes the summed gradients and applies
// their scale (1 / global count, times the clipping factor). Every replica holds the same state and
// computes the same update. Parameter servers update served parameters. The optimizer has slots for
// served parameters only during a save, a load or a hash.
// The constructor cuts all parameters into runs of a fixed size; each pass over the runs is one
// parallel loop.
// Thread rule: the step's thread.
#pragma once

#include <string>
#include <vector>

#include "absl/numeric/int128.h"
#include "kernels/optimizer.h"
#include "trainer/autograd/parameter.h"

namespace tandem::optim {

enum class Kind { SGD, ADAGRAD, ADAM, ADAMW };

struct DenseOptions {
  Kind kind = Kind::ADAM;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
  bool decay_all = false;  // decay also biases and norms
};

class DenseOptimizer {
 public:
  DenseOptimizer(const DenseOptions& options, ParameterSet* parameters);

  // Updates all parameters that are not served and have a gradient, and the bf16 shadows of their
  // leaves. `step` counts from 1.
  void Update(uint64_t step, double learning_rate, double gradient_scale, Stream& stream);
  // The sum of squares over the gradients of those parameters, f64, in parameter order.
  double GradientSquaredNorm(Stream& stream) const;
  // Returns the checkpoint name of a tensor with a NaN or an infinity ("head.weight",
  // "head.weight#m"), or "" if all are finite. Waits for the device. Looks at the slots of served
  // parameters only while they are held.
  std::string FirstNonFinite(Stream& stream) const;
  // Like FirstNonFinite, for the gradients. Returns the parameter's name.
  std::string FirstNonFiniteGradient(Stream& stream) const;
  // The hash of parameters and optimizer slots, as in params_hash. Includes served parameters only
  // while their slots are held.
  absl::uint128 Hash() const;

  // HoldServedSlots makes zeroed slots for served parameters; DropServedSlots frees them.
  void HoldServedSlots();
  void DropServedSlots();
  // The slots of parameter i, in their stored order ("m", "v"; "accumulator"). A served parameter
  // has none unless held.
  const std::vector<Tensor>& slots(size_t i) const { return slots_[i]; }
  std::vector<std::string> slot_names() const;

 private:
  // Elements [begin, begin + count) of one parameter.
  struct Run {
    size_t parameter;
    int64_t begin, count;
  };

  std::vector<Tensor> NewSlots(const Shape& shape) const;
  // The parameters to update, one run each.
  std::vector<kernels::OptimizerRun> DeviceRuns() const;
  void UpdateOnDevice(uint64_t step, double learning_rate, double gradient_scale, Stream& stream) const;
  template <class T>
  void UpdateRun(const Run& run, uint64_t step, double learning_rate, double gradient_scale) const;

  const DenseOptions options_;
  ParameterSet* parameters_;
  std::vector<std::vector<Tensor>> slots_;
  std::vector<Run> runs_;  // in parameter order, without served parameters
  int64_t num_elements_ = 0;  // in all runs
  bool holds_served_ = false;
};

}  // namespace tandem::optim
