#include "kernels/optimizer.h"

#include "kernels/base/check.h"
#include "kernels/cpu/optimizer_rules.h"
#include "kernels/cpu/vector/strips.h"
#include "kernels/cpu/vector/vectorise.h"
#include "kernels/cuda/kernels.h"

namespace tandem::kernels {

namespace {

// weight[i] = updated(i) for all i, and the bf16 copy. `read` are the other arrays that updated(i)
// reads at i.
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
    if (shadow == nullptr)
      InStrips(n, write, weight, read...);
    else
      InStrips(n, write, weight, shadow, read...);
  });
}

}  // namespace

template <class T>
void SgdUpdate(T* weight, const T* gradient, int64_t n, const SgdArgs& args, BFloat16* shadow) {
  const T scale = static_cast<T>(args.gradient_scale);
  Write(
      weight, shadow, n,
      [=, rule = SgdRule<T>(args)](int64_t i) { return rule(weight[i], gradient[i] * scale); },
      gradient);
}

template <class T>
void AdagradUpdate(T* weight, T* accumulator, const T* gradient, int64_t n, const AdagradArgs& args,
                   BFloat16* shadow) {
  const T scale = static_cast<T>(args.gradient_scale);
  Write(
      weight, shadow, n,
      [=, rule = AdagradRule<T>(args)](int64_t i) {
        return rule(weight[i], accumulator[i], gradient[i] * scale);
      },
      accumulator, gradient);
}

template <class T>
void AdamUpdate(T* weight, T* m, T* v, const T* gradient, int64_t n, const AdamArgs& args,
                BFloat16* shadow) {
  const T scale = static_cast<T>(args.gradient_scale);
  Write(
      weight, shadow, n,
      [=, rule = AdamRule<T>(args)](int64_t i) {
        return rule(weight[i], m[i], v[i], gradient[i] * scale);
      },
      m, v, gradient);
}

template <class T>
void AmsgradUpdate(T* weight, T* m, T* v, T* v_max, const T* gradient, int64_t n,
                   const AdamArgs& args) {
  const T scale = static_cast<T>(args.gradient_scale);
  Write(
      weight, nullptr, n,
      [=, rule = AmsgradRule<T>(args)](int64_t i) {
        return rule(weight[i], m[i], v[i], v_max[i], gradient[i] * scale);
      },
      m, v, v_max, gradient);
}

template <class T>
void MomentumUpdate(T* weight, T* m, const T* gradient, int64_t n, const MomentumArgs& args) {
  const T scale = static_cast<T>(args.gradient_scale);
  Write(
      weight, nullptr, n,
      [=, rule = MomentumRule<T>(args)](int64_t i) {
        return rule(weight[i], m[i], gradient[i] * scale);
      },
      m, gradient);
}

template <class T>
void RmspropUpdate(T* weight, T* mean_square, const T* gradient, int64_t n,
                   const RmspropArgs& args) {
  const T scale = static_cast<T>(args.gradient_scale);
  Write(
      weight, nullptr, n,
      [=, rule = RmspropRule<T>(args)](int64_t i) {
        return rule(weight[i], mean_square[i], gradient[i] * scale);
      },
      mean_square, gradient);
}

template <class T>
void AdadeltaUpdate(T* weight, T* mean_square, T* mean_square_change, const T* gradient, int64_t n,
                    const AdadeltaArgs& args) {
  const T scale = static_cast<T>(args.gradient_scale);
  Write(
      weight, nullptr, n,
      [=, rule = AdadeltaRule<T>(args)](int64_t i) {
        return rule(weight[i], mean_square[i], mean_square_change[i], gradient[i] * scale);
      },
      mean_square, mean_square_change, gradient);
}

template void SgdUpdate(float*, const float*, int64_t, const SgdArgs&, BFloat16*);
template void SgdUpdate(double*, const double*, int64_t, const SgdArgs&, BFloat16*);
template void AdagradUpdate(float*, float*, const float*, int64_t, const AdagradArgs&, BFloat16*);
template void AdagradUpdate(double*, double*, const double*, int64_t, const AdagradArgs&,
                            BFloat16*);
template void AdamUpdate(float*, float*, float*, const float*, int64_t, const AdamArgs&, BFloat16*);
template void AdamUpdate(double*, double*, double*, const double*, int64_t, const AdamArgs&,
                         BFloat16*);
template void AmsgradUpdate(float*, float*, float*, float*, const float*, int64_t, const AdamArgs&);
template void AmsgradUpdate(double*, double*, double*, double*, const double*, int64_t,
                            const AdamArgs&);
template void MomentumUpdate(float*, float*, const float*, int64_t, const MomentumArgs&);
template void MomentumUpdate(double*, double*, const double*, int64_t, const MomentumArgs&);
template void RmspropUpdate(float*, float*, const float*, int64_t, const RmspropArgs&);
template void RmspropUpdate(double*, double*, const double*, int64_t, const RmspropArgs&);
template void AdadeltaUpdate(float*, float*, float*, const float*, int64_t, const AdadeltaArgs&);
template void AdadeltaUpdate(double*, double*, double*, const double*, int64_t,
                             const AdadeltaArgs&);

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
