// Optimizer updates on flat f32 or f64 runs: one formula for dense parameters and for rows of a
// parameter server. `gradient_scale` multiplies every gradient first (1 / global count, times the
// clipping factor). Steps count from 1. `shadow`, if not null, receives the new weights rounded to
// bf16 in the same pass. An element's new value depends neither on its place in the run nor on the
// instruction set.
// Thread rule: the stream's thread. Functions without a stream are pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/base/bfloat16.h"
#include "kernels/memory/stream.h"

namespace tandem::kernels {

// w *= 1 - lr * weight_decay (0 for plain SGD), then w -= lr * g.
struct SgdArgs {
  double learning_rate = 0, weight_decay = 0, gradient_scale = 1;
};
// Adagrad (Duchi et al. 2011): a += g^2; w -= lr * g / (sqrt(a) + epsilon).
struct AdagradArgs {
  double learning_rate = 0, epsilon = 1e-10, gradient_scale = 1;
};
// Adam (Kingma and Ba 2015), with bias correction from `step`:
// w -= lr * (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + epsilon).
// weight_decay is decoupled (AdamW, Loshchilov and Hutter 2019): w *= 1 - lr * weight_decay first;
// 0 gives Adam.
struct AdamArgs {
  double learning_rate = 0, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0,
         gradient_scale = 1;
  uint64_t step = 1;
};
// Heavy ball (Polyak 1964): m = momentum * m + g; w -= lr * m.
// With `nesterov` (Sutskever et al. 2013): w -= lr * (g + momentum * m).
struct MomentumArgs {
  double learning_rate = 0, momentum = 0.9, gradient_scale = 1;
  bool nesterov = false;
};
// RMSProp (Tieleman and Hinton 2012): a = rho * a + (1 - rho) * g^2;
// w -= lr * g / (sqrt(a) + epsilon).
struct RmspropArgs {
  double learning_rate = 0, rho = 0.9, epsilon = 1e-8, gradient_scale = 1;
};
// Adadelta (Zeiler 2012): a = rho * a + (1 - rho) * g^2;
// x = g * sqrt(d + epsilon) / sqrt(a + epsilon); d = rho * d + (1 - rho) * x^2; w -= lr * x.
struct AdadeltaArgs {
  double learning_rate = 1, rho = 0.9, epsilon = 1e-6, gradient_scale = 1;
};

// One flat run of an f32 parameter on a CUDA device; one update call takes many runs. `slots`
// follow the optimizer (Adagrad: the accumulator; Adam: m, v). Weight decay applies if `decay`.
struct OptimizerRun {
  float* weight = nullptr;
  float* slots[2] = {};
  const float* gradient = nullptr;
  BFloat16* shadow = nullptr;  // may be null
  int64_t count = 0;
  bool decay = false;
};

// Update all runs on the device of `stream` in one pass.
void SgdUpdate(const std::vector<OptimizerRun>& runs, const SgdArgs& args, Stream& stream);
void AdagradUpdate(const std::vector<OptimizerRun>& runs, const AdagradArgs& args, Stream& stream);
void AdamUpdate(const std::vector<OptimizerRun>& runs, const AdamArgs& args, Stream& stream);
// The sum of the squares of all runs' gradients, in f64.
double GradientSquaredNorm(const std::vector<OptimizerRun>& runs, Stream& stream);

template <class T>
void SgdUpdate(T* weight, const T* gradient, int64_t n, const SgdArgs& args,
               BFloat16* shadow = nullptr);
template <class T>
void AdagradUpdate(T* weight, T* accumulator, const T* gradient, int64_t n, const AdagradArgs& args,
                   BFloat16* shadow = nullptr);
template <class T>
void AdamUpdate(T* weight, T* m, T* v, const T* gradient, int64_t n, const AdamArgs& args,
                BFloat16* shadow = nullptr);

// The remaining updates run on a CPU only, because only rows of parameter servers use them.
template <class T>
void MomentumUpdate(T* weight, T* m, const T* gradient, int64_t n, const MomentumArgs& args);
template <class T>
void RmspropUpdate(T* weight, T* mean_square, const T* gradient, int64_t n,
                   const RmspropArgs& args);
template <class T>
void AdadeltaUpdate(T* weight, T* mean_square, T* mean_square_change, const T* gradient, int64_t n,
                    const AdadeltaArgs& args);
// AMSGrad (Reddi et al. 2018): Adam that divides by `v_max`, the largest v so far, instead of v.
template <class T>
void AmsgradUpdate(T* weight, T* m, T* v, T* v_max, const T* gradient, int64_t n,
                   const AdamArgs& args);

}  // namespace tandem::kernels
