#include "kernels/optimizer.h"

#include <cmath>

#include "kernels/base/check.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/strips.h"
#include "kernels/cpu/vectorise.h"
#include "kernels/cuda/kernels.h"

// Only +, *, / and square roots of one element: each is exact to the last bit in every instruction set, so an element's new value
// does not depend on where in a run it stands.
namespace tandem::kernels {

namespace {

// weight[i] = updated(i) for all i, and its bf16 copy. `read`: the other arrays that updated(i) reads at i.
template <class T, class Updated, class... Read>
void Write(T* weight, BFloat16* shadow, int64_t n, const Updated& updated, const Read*... read) {
  Vectorised([=] {
    const auto write = [=](int64_t begin, int64_t end) {
      if (shadow == nullptr) {
#pragma GCC ivdep
        for (int64_t i = begin; i < end; ++i) weight[i] = updated(i);
        return;
      }
#pragma GCC ivdep
      for (int64_t i = begin; i < end; ++i) {
        const T w = updated(i);
        weight[i] = w;
        shadow[i] = ToBFloat16(static_cast<float>(w));
      }
    };
    if (shadow == nullptr) InStrips(n, write, weight, read...);
    else InStrips(n, write, weight, shadow, read...);
  });
}

}  // namespace

template <class T>
void SgdUpdate(T* weight, const T* gradient, int64_t n, const SgdArgs& args, BFloat16* shadow) {
  const T decay = static_cast<T>(1.0 - args.learning_rate * args.weight_decay);
  const T rate = static_cast<T>(args.learning_rate), scale = static_cast<T>(args.gradient_scale);
  Write(weight, shadow, n, [=](int64_t i) { return weight[i] * decay - rate * (gradient[i] * scale); }, gradient);
}

template <class T>
void AdagradUpdate(T* weight, T* accumulator, const T* gradient, int64_t n, const AdagradArgs& args, BFloat16* shadow) {
  const T rate = static_cast<T>(args.learning_rate), scale = static_cast<T>(args.gradient_scale);
  const T epsilon = static_cast<T>(args.epsilon);
  Write(weight, shadow, n, [=](int64_t i) {
    const T g = gradient[i] * scale;
    const T a = accumulator[i] + g * g;
    accumulator[i] = a;
    return weight[i] - rate * g / (Sqrt(a) + epsilon);
  }, accumulator, gradient);
}

namespace {

// What a step of Adam multiplies by and adds, in the type that it computes in.
template <class T>
struct AdamFactors {
  explicit AdamFactors(const AdamArgs& args)
      : rate(static_cast<T>(args.learning_rate / (1.0 - std::pow(args.beta1, static_cast<double>(args.step))))),
        correction(static_cast<T>(1.0 / (1.0 - std::pow(args.beta2, static_cast<double>(args.step))))),
        decay(static_cast<T>(1.0 - args.learning_rate * args.weight_decay)),
        b1(static_cast<T>(args.beta1)), c1(static_cast<T>(1.0 - args.beta1)),
        b2(static_cast<T>(args.beta2)), c2(static_cast<T>(1.0 - args.beta2)),
        epsilon(static_cast<T>(args.epsilon)), scale(static_cast<T>(args.gradient_scale)) {
    TANDEM_CHECK_GE(args.step, uint64_t{1});
  }
  T rate, correction, decay, b1, c1, b2, c2, epsilon, scale;
};

}  // namespace

template <class T>
void AdamUpdate(T* weight, T* m, T* v, const T* gradient, int64_t n, const AdamArgs& args, BFloat16* shadow) {
  const AdamFactors<T> f(args);
  Write(weight, shadow, n, [=](int64_t i) {
    const T g = gradient[i] * f.scale;
    const T first = f.b1 * m[i] + f.c1 * g;
    const T second = f.b2 * v[i] + f.c2 * (g * g);
    m[i] = first;
    v[i] = second;
    return weight[i] * f.decay - f.rate * first / (Sqrt(second * f.correction) + f.epsilon);
  }, m, v, gradient);
}

template <class T>
void AmsgradUpdate(T* weight, T* m, T* v, T* v_max, const T* gradient, int64_t n, const AdamArgs& args) {
  const AdamFactors<T> f(args);
  Write(weight, nullptr, n, [=](int64_t i) {
    const T g = gradient[i] * f.scale;
    const T first = f.b1 * m[i] + f.c1 * g;
    const T second = f.b2 * v[i] + f.c2 * (g * g);
    const T largest = second > v_max[i] ? second : v_max[i];
    m[i] = first;
    v[i] = second;
    v_max[i] = largest;
    return weight[i] * f.decay - f.rate * first / (Sqrt(largest * f.correction) + f.epsilon);
  }, m, v, v_max, gradient);
}

template <class T>
void MomentumUpdate(T* weight, T* m, const T* gradient, int64_t n, const MomentumArgs& args) {
  const T rate = static_cast<T>(args.learning_rate), scale = static_cast<T>(args.gradient_scale);
  const T momentum = static_cast<T>(args.momentum);
  // With Nesterov the step looks ahead: momentum times the new m, plus g once more; else m alone.
  const T of_m = args.nesterov ? momentum : T{1}, of_g = args.nesterov ? T{1} : T{0};
  Write(weight, nullptr, n, [=](int64_t i) {
    const T g = gradient[i] * scale;
    const T moved = momentum * m[i] + g;
    m[i] = moved;
    return weight[i] - rate * (of_g * g + of_m * moved);
  }, m, gradient);
}

template <class T>
void RmspropUpdate(T* weight, T* mean_square, const T* gradient, int64_t n, const RmspropArgs& args) {
  const T rate = static_cast<T>(args.learning_rate), scale = static_cast<T>(args.gradient_scale);
  const T rho = static_cast<T>(args.rho), rest = static_cast<T>(1.0 - args.rho), epsilon = static_cast<T>(args.epsilon);
  Write(weight, nullptr, n, [=](int64_t i) {
    const T g = gradient[i] * scale;
    const T a = rho * mean_square[i] + rest * (g * g);
    mean_square[i] = a;
    return weight[i] - rate * g / (Sqrt(a) + epsilon);
  }, mean_square, gradient);
}

template <class T>
void AdadeltaUpdate(T* weight, T* mean_square, T* mean_square_change, const T* gradient, int64_t n, const AdadeltaArgs& args) {
  const T rate = static_cast<T>(args.learning_rate), scale = static_cast<T>(args.gradient_scale);
  const T rho = static_cast<T>(args.rho), rest = static_cast<T>(1.0 - args.rho), epsilon = static_cast<T>(args.epsilon);
  Write(weight, nullptr, n, [=](int64_t i) {
    const T g = gradient[i] * scale;
    const T a = rho * mean_square[i] + rest * (g * g);
    const T change = g * Sqrt(mean_square_change[i] + epsilon) / Sqrt(a + epsilon);
    mean_square[i] = a;
    mean_square_change[i] = rho * mean_square_change[i] + rest * (change * change);
    return weight[i] - rate * change;
  }, mean_square, mean_square_change, gradient);
}

template void SgdUpdate(float*, const float*, int64_t, const SgdArgs&, BFloat16*);
template void SgdUpdate(double*, const double*, int64_t, const SgdArgs&, BFloat16*);
template void AdagradUpdate(float*, float*, const float*, int64_t, const AdagradArgs&, BFloat16*);
template void AdagradUpdate(double*, double*, const double*, int64_t, const AdagradArgs&, BFloat16*);
template void AdamUpdate(float*, float*, float*, const float*, int64_t, const AdamArgs&, BFloat16*);
template void AdamUpdate(double*, double*, double*, const double*, int64_t, const AdamArgs&, BFloat16*);
template void AmsgradUpdate(float*, float*, float*, float*, const float*, int64_t, const AdamArgs&);
template void AmsgradUpdate(double*, double*, double*, double*, const double*, int64_t, const AdamArgs&);
template void MomentumUpdate(float*, float*, const float*, int64_t, const MomentumArgs&);
template void MomentumUpdate(double*, double*, const double*, int64_t, const MomentumArgs&);
template void RmspropUpdate(float*, float*, const float*, int64_t, const RmspropArgs&);
template void RmspropUpdate(double*, double*, const double*, int64_t, const RmspropArgs&);
template void AdadeltaUpdate(float*, float*, float*, const float*, int64_t, const AdadeltaArgs&);
template void AdadeltaUpdate(double*, double*, double*, const double*, int64_t, const AdadeltaArgs&);

void SgdUpdate(const std::vector<OptimizerRun>& runs, const SgdArgs& args, Stream& stream) {
  TANDEM_CHECK(stream.on_cuda());
  cuda::SgdUpdate(runs, args, stream);
}

void AdagradUpdate(const std::vector<OptimizerRun>& runs, const AdagradArgs& args, Stream& stream) {
  TANDEM_CHECK(stream.on_cuda());
  cuda::AdagradUpdate(runs, args, stream);
}

void AdamUpdate(const std::vector<OptimizerRun>& runs, const AdamArgs& args, Stream& stream) {
  TANDEM_CHECK(stream.on_cuda());
  cuda::AdamUpdate(runs, args, stream);
}

double GradientSquaredNorm(const std::vector<OptimizerRun>& runs, Stream& stream) {
  TANDEM_CHECK(stream.on_cuda());
  return cuda::GradientSquaredNorm(runs, stream);
}

}  // namespace tandem::kernels
