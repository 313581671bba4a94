// The optimizer of a replica's dense parameters. One update takes the summed gradients and applies
// the scale inside (1 / global count, times the clipping factor). A rank updates whole parameters,
// or only ranges of their elements (ZeRO); moments exist for these elements alone. The optimizer
// cuts its ranges into runs of a fixed size once. Each pass over the runs is one parallel loop.
// Thread rule: the step's thread.
#pragma once

#include <string>
#include <vector>

#include "kernels/optimizer.h"
#include "trainer/autograd/parameter.h"
#include "trainer/optim/dense_state.h"

namespace tandem::optim {

enum class Kind { SGD, ADAGRAD, ADAM, ADAMW };

struct DenseOptions {
  Kind kind = Kind::ADAM;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
  bool decay_all = false;  // decays biases and norms too
};

class DenseOptimizer {
 public:
  // Updates all parameters of the set, or only the ranges `updated`.
  // REQUIRES: `updated` are of the set, in its order, at most one range of each parameter.
  DenseOptimizer(const DenseOptions& options, ParameterSet* parameters);
  DenseOptimizer(const DenseOptions& options, ParameterSet* parameters,
                 const std::vector<ElementRange>& updated);

  // Updates the ranges of parameters that have a gradient, and of their leaves' bf16 shadows.
  // `step` counts from 1.
  void Update(uint64_t step, double learning_rate, double gradient_scale, Stream& stream);
  // Returns the sum of squares over the gradients of the updated ranges that count, in f64, in
  // parameter order.
  double GradientSquaredNorm(Stream& stream) const;
  // Names a value or a slot of what is here that has a NaN or an infinity. Names are a checkpoint's
  // ("head.weight", "head.weight#m"). Returns "" if all are finite. Waits for the device.
  std::string FirstNonFinite(Stream& stream) const;
  // Names a parameter whose gradient has a NaN or an infinity. Returns "" if there is none.
  std::string FirstNonFiniteGradient(Stream& stream) const;

  // Returns the entries of what is updated here, or only of the ranges that count.
  DenseState State() const;
  DenseState CountedState() const;
  // Returns the optimizer's slots of parameter i, in their stored order ("m", "v"; "accumulator"),
  // flat. Empty for a parameter updated elsewhere.
  const std::vector<Tensor>& slots(size_t i) const { return slots_[i]; }
  std::vector<std::string> slot_names() const;
  // The number of elements that are updated here.
  int64_t num_updated() const { return num_elements_; }

 private:
  // Elements [begin, begin + count) of the range of one parameter.
  struct Run {
    size_t parameter;
    int64_t begin, count;
  };
  // The arrays that an update of a range reads and writes, flat.
  struct Arrays {
    Tensor value, gradient;  // gradient undefined: no update
    BFloat16* shadow = nullptr;
  };

  // Returns the arrays of each parameter's range.
  std::vector<Arrays> RangeArrays() const;
  // Returns the ranges to update, one run each.
  std::vector<kernels::OptimizerRun> DeviceRuns(bool counted_only = false) const;
  void UpdateOnDevice(uint64_t step, double learning_rate, double gradient_scale,
                      Stream& stream) const;
  template <class T>
  void UpdateRun(const Run& run, const Arrays& arrays, uint64_t step, double learning_rate,
                 double gradient_scale) const;

  const DenseOptions options_;
  ParameterSet* parameters_;
  std::vector<ElementRange> ranges_;  // by parameter; count 0: updated elsewhere
  std::vector<std::vector<Tensor>> slots_;
  std::vector<Run> runs_;     // in parameter order
  int64_t num_elements_ = 0;  // in the runs
};

}  // namespace tandem::optim
