// Optimizer updates on flat f32 or f64 runs: one formula for dense parameters and for the rows of a parameter server.
// `gradient_scale` multiplies every gradient first (1 / global count, times the clipping factor). Step counts from 1.
// `shadow`, if not null, gets the new weights rounded to bf16 in the same pass. An element's new value depends neither on its place
// in the run nor on the instruction set.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/base/bfloat16.h"
#include "kernels/base/stream.h"

namespace tandem::kernels {

// w -= lr * g, with w *= (1 - lr * weight_decay) before (0 for plain SGD).
struct SgdArgs {
  double learning_rate = 0, weight_decay = 0, gradient_scale = 1;
};
// Adagrad (Duchi et al. 2011): a += g^2; w -= lr * g / (sqrt(a) + epsilon).
struct AdagradArgs {
  double learning_rate = 0, epsilon = 1e-10, gradient_scale = 1;
};
// Adam (Kingma and Ba 2015), bias correction from `step`: w -= lr * (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + epsilon).
// weight_decay is decoupled (AdamW, Loshchilov and Hutter 2019): w *= 1 - lr * weight_decay first; 0 gives Adam.
struct AdamArgs {
  double learning_rate = 0, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0, gradient_scale = 1;
  uint64_t step = 1;
};

// One flat run of an f32 parameter on a CUDA device, which updates many of them at once. slots as the optimizer's kind has
// them (Adagrad: the accumulator; Adam: m, v); weight decay applies if `decay`.
struct OptimizerRun {
  float* weight = nullptr;
  float* slots[2] = {};
  const float* gradient = nullptr;
  BFloat16* shadow = nullptr;  // may be null
  int64_t count = 0;
  bool decay = false;
};

// All runs on the device of `stream`, in one pass.
void SgdUpdate(const std::vector<OptimizerRun>& runs, const SgdArgs& args, Stream& stream);
void AdagradUpdate(const std::vector<OptimizerRun>& runs, const AdagradArgs& args, Stream& stream);
void AdamUpdate(const std::vector<OptimizerRun>& runs, const AdamArgs& args, Stream& stream);
// The sum of the squares of all runs' gradients, in f64.
double GradientSquaredNorm(const std::vector<OptimizerRun>& runs, Stream& stream);

template <class T>
void SgdUpdate(T* weight, const T* gradient, int64_t n, const SgdArgs& args, BFloat16* shadow = nullptr);
template <class T>
void AdagradUpdate(T* weight, T* accumulator, const T* gradient, int64_t n, const AdagradArgs& args, BFloat16* shadow = nullptr);
template <class T>
void AdamUpdate(T* weight, T* m, T* v, const T* gradient, int64_t n, const AdamArgs& args, BFloat16* shadow = nullptr);

}  // namespace tandem::kernels
