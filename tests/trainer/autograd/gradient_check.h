// Compares the engine's gradients with central differences in f64, for every element of every leaf.
#pragma once

#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <vector>

#include "kernels/base/random.h"
#include "trainer/autograd/engine.h"

namespace tandem::testing {

// Everything that an operation needs to run on its own.
class StepFixture {
 public:
  explicit StepFixture(int threads = 1) : pool_(threads), stream_(&pool_) {}
  Context::Options Options(uint64_t step = 1, bool training = true) {
    return {.stream = &stream_,
            .seed = 17,
            .step = step,
            .training = training,
            .deadline = absl::Now() + absl::Seconds(20)};
  }
  Stream& stream() { return stream_; }

 private:
  ThreadPool pool_;
  Stream stream_;
};

inline Tensor RandomTensor(Shape shape, uint64_t seed, DType dtype = DType::F64, double scale = 1) {
  Tensor tensor = Tensor::Empty(shape, dtype);
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    tensor.Set(i, scale * RandomNormal({seed, 99}, 0, static_cast<uint64_t>(i)));
  }
  return tensor;
}

// Fixed random weights turn any output into a scalar, whose gradient tests every element.
inline double WeightedSum(const Tensor& output) {
  double sum = 0;
  for (int64_t i = 0; i < output.num_elements(); ++i) {
    sum += output.At(i) * RandomNormal({5, 6}, 0, static_cast<uint64_t>(i));
  }
  return sum;
}

using Function = std::function<Variable(Context&)>;

// REQUIRES: `function` reads the leaves' values anew at each call; leaves are f64.
inline void CheckGradients(const Function& function, const std::vector<Variable>& leaves,
                           double tolerance = 1e-6, double step = 1e-5) {
  StepFixture fixture;
  Context context(fixture.Options());
  for (const Variable& leaf : leaves) leaf.leaf().ClearGradient();
  const Variable output = function(context);
  Tensor seed = Tensor::Empty(output.shape(), DType::F64);
  for (int64_t i = 0; i < seed.num_elements(); ++i)
    seed.Set(i, RandomNormal({5, 6}, 0, static_cast<uint64_t>(i)));
  Backward(context, {{output, seed}});
  ASSERT_TRUE(context.status().ok()) << context.status();
  for (const Variable& leaf : leaves) {
    ASSERT_TRUE(leaf.leaf().has_gradient()) << leaf.node()->name();
    for (int64_t i = 0; i < leaf.value().num_elements(); ++i) {
      const double old = leaf.value().At(i);
      double sums[2];
      for (int side = 0; side < 2; ++side) {
        leaf.value().Set(i, old + (side == 0 ? step : -step));
        Context probe(fixture.Options());
        sums[side] = WeightedSum(function(probe).value());
      }
      leaf.value().Set(i, old);
      const double numeric = (sums[0] - sums[1]) / (2 * step);
      const double exact = leaf.leaf().gradient().At(i);
      ASSERT_NEAR(exact, numeric, tolerance * std::max(1.0, std::abs(numeric)))
          << leaf.node()->name() << " element " << i;
    }
  }
}

}  // namespace tandem::testing
