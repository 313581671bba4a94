#include "kernels/optimizer.h"

#include <cmath>

#include "kernels/cpu/math.h"
#include "kernels/cpu/vectorise.h"

// Only +, *, / and square roots of one element: each is exact to the last bit in every instruction set, so an element's new value
// does not depend on where in a run it stands.
namespace tandem::kernels {

template <class T>
void SgdUpdate(T* weight, const T* gradient, int64_t n, const SgdArgs& args) {
  const T decay = static_cast<T>(1.0 - args.learning_rate * args.weight_decay);
  const T rate = static_cast<T>(args.learning_rate), scale = static_cast<T>(args.gradient_scale);
  Vectorised([=] {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) weight[i] = weight[i] * decay - rate * (gradient[i] * scale);
  });
}

template <class T>
void AdagradUpdate(T* weight, T* accumulator, const T* gradient, int64_t n, const AdagradArgs& args) {
  const T rate = static_cast<T>(args.learning_rate), scale = static_cast<T>(args.gradient_scale);
  const T epsilon = static_cast<T>(args.epsilon);
  Vectorised([=] {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) {
      const T g = gradient[i] * scale;
      const T a = accumulator[i] + g * g;
      accumulator[i] = a;
      weight[i] = weight[i] - rate * g / (Sqrt(a) + epsilon);
    }
  });
}

template <class T>
void AdamUpdate(T* weight, T* m, T* v, const T* gradient, int64_t n, const AdamArgs& args) {
  const double t = static_cast<double>(args.step);
  const T rate = static_cast<T>(args.learning_rate / (1.0 - std::pow(args.beta1, t)));
  const T correction = static_cast<T>(1.0 / (1.0 - std::pow(args.beta2, t)));
  const T decay = static_cast<T>(1.0 - args.learning_rate * args.weight_decay);
  const T b1 = static_cast<T>(args.beta1), c1 = static_cast<T>(1.0 - args.beta1);
  const T b2 = static_cast<T>(args.beta2), c2 = static_cast<T>(1.0 - args.beta2);
  const T epsilon = static_cast<T>(args.epsilon), scale = static_cast<T>(args.gradient_scale);
  Vectorised([=] {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) {
      const T g = gradient[i] * scale;
      const T first = b1 * m[i] + c1 * g;
      const T second = b2 * v[i] + c2 * (g * g);
      m[i] = first;
      v[i] = second;
      weight[i] = weight[i] * decay - rate * first / (Sqrt(second * correction) + epsilon);
    }
  });
}

template void SgdUpdate(float*, const float*, int64_t, const SgdArgs&);
template void SgdUpdate(double*, const double*, int64_t, const SgdArgs&);
template void AdagradUpdate(float*, float*, const float*, int64_t, const AdagradArgs&);
template void AdagradUpdate(double*, double*, const double*, int64_t, const AdagradArgs&);
template void AdamUpdate(float*, float*, float*, const float*, int64_t, const AdamArgs&);
template void AdamUpdate(double*, double*, double*, const double*, int64_t, const AdamArgs&);

}  // namespace tandem::kernels
