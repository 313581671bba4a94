#include "kernels/norm.h"

#include "kernels/cpu/column_partials.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vectorise.h"

namespace tandem::kernels {

namespace {

// Layer norm and RMS norm are one computation: the second takes the mean as 0 and has no beta. Null pointers are absent views.
template <class T>
struct NormArrays {
  int64_t rows = 0, columns = 0;
  const T *x = nullptr, *gamma = nullptr, *beta = nullptr, *grad_output = nullptr;
  T *mean = nullptr, *inverse = nullptr;
  T *output = nullptr, *grad_input = nullptr, *grad_gamma = nullptr, *grad_beta = nullptr;
};

template <class T>
T* Optional(const ArrayView& view, int64_t count) {
  if (view.empty()) return nullptr;
  TANDEM_CHECK_EQ(view.num_elements(), count);
  return view.as<T>();
}

template <class T>
T* Required(const ArrayView& view, int64_t count) {
  TANDEM_CHECK_EQ(view.num_elements(), count);
  TANDEM_CHECK(view.is_dense()) << view.shape;
  return view.as<T>();
}

template <class T>
inline void ForwardRow(const NormArrays<T>& a, int64_t r, T epsilon) {
  const int64_t n = a.columns;
  const T *x = a.x + r * n, *gamma = a.gamma, *beta = a.beta;
  T* output = a.output + r * n;
  const T mean = a.mean != nullptr ? LaneSum<T>(n, [=](int64_t i) { return x[i]; }) / static_cast<T>(n) : T(0);
  const T square = LaneSum<T>(n, [=](int64_t i) { return (x[i] - mean) * (x[i] - mean); }) / static_cast<T>(n);
  const T inverse = T(1) / Sqrt(square + epsilon);
  if (a.mean != nullptr) a.mean[r] = mean;
  a.inverse[r] = inverse;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    T value = (x[i] - mean) * inverse;
    if (gamma != nullptr) value = value * gamma[i];
    if (beta != nullptr) value = value + beta[i];
    output[i] = value;
  }
}

template <class T>
void Forward(const NormArrays<T>& a, double epsilon, Stream& stream) {
  ParallelRows(stream, a.rows, 3 * a.columns, [&](int64_t begin, int64_t end) {
    Vectorised([&] {
      for (int64_t r = begin; r < end; ++r) ForwardRow(a, r, static_cast<T>(epsilon));
    });
  });
}

// With h = (x - mean) inverse and g = grad_output gamma: grad_input = inverse (g - mean(g) - h mean(g h)), the middle term for
// layer norm only. `partial` [2 columns] collects the rows' grad_output h and grad_output.
template <class T>
inline void BackwardRow(const NormArrays<T>& a, int64_t r, T* partial) {
  const int64_t n = a.columns;
  const T *x = a.x + r * n, *grad = a.grad_output + r * n, *gamma = a.gamma;
  T* grad_input = a.grad_input + r * n;
  const bool centred = a.mean != nullptr;
  const T mean = centred ? a.mean[r] : T(0), inverse = a.inverse[r], count = static_cast<T>(n);
  const auto g = [=](int64_t i) { return gamma != nullptr ? grad[i] * gamma[i] : grad[i]; };
  const auto h = [=](int64_t i) { return (x[i] - mean) * inverse; };
  const T mean_g = centred ? LaneSum<T>(n, g) / count : T(0);
  const T mean_gh = LaneSum<T>(n, [=](int64_t i) { return g(i) * h(i); }) / count;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    partial[i] += grad[i] * h(i);
    partial[n + i] += grad[i];
  }
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) grad_input[i] = inverse * ((g(i) - mean_g) - h(i) * mean_gh);
}

template <class T>
void Backward(const NormArrays<T>& a, Stream& stream) {
  const int64_t columns = 2 * a.columns;
  T* partials = Scratch<T>(ScratchSlot::CALLER, (a.rows / kPartialRows + 1) * columns);
  const int64_t num_blocks =
      RowBlockPartials<T>(a.rows, columns, stream, partials, [&](int64_t begin, int64_t end, T* partial) {
        for (int64_t r = begin; r < end; ++r) BackwardRow(a, r, partial);
      });
  if (a.grad_gamma != nullptr) AddPartials(num_blocks, columns, partials, 0, a.columns, a.grad_gamma, false);
  if (a.grad_beta != nullptr) AddPartials(num_blocks, columns, partials, a.columns, a.columns, a.grad_beta, false);
}

template <class T>
NormArrays<T> ArraysOf(const ArrayView& x, const ArrayView& gamma, const ArrayView& inverse) {
  NormArrays<T> a;
  a.rows = x.shape.num_rows();
  a.columns = x.shape[-1];
  a.x = Required<T>(x, x.num_elements());
  a.gamma = Optional<T>(gamma, a.columns);
  a.inverse = Required<T>(inverse, a.rows);
  return a;
}

}  // namespace

void LayerNormForward(const LayerNormForwardArgs& args, Stream& stream) {
  WithFloatType(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    NormArrays<T> a = ArraysOf<T>(args.x, args.gamma, args.inverse);
    a.beta = Optional<T>(args.beta, a.columns);
    a.output = Required<T>(args.output, args.x.num_elements());
    a.mean = Required<T>(args.mean, a.rows);
    Forward(a, args.epsilon, stream);
  });
}

void LayerNormBackward(const LayerNormBackwardArgs& args, Stream& stream) {
  WithFloatType(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    NormArrays<T> a = ArraysOf<T>(args.x, args.gamma, args.inverse);
    a.mean = Required<T>(args.mean, a.rows);
    a.grad_output = Required<T>(args.grad_output, args.x.num_elements());
    a.grad_input = Required<T>(args.grad_input, args.x.num_elements());
    a.grad_gamma = Optional<T>(args.grad_gamma, a.columns);
    a.grad_beta = Optional<T>(args.grad_beta, a.columns);
    Backward(a, stream);
  });
}

void RmsNormForward(const RmsNormForwardArgs& args, Stream& stream) {
  WithFloatType(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    NormArrays<T> a = ArraysOf<T>(args.x, args.gamma, args.inverse);
    a.output = Required<T>(args.output, args.x.num_elements());
    Forward(a, args.epsilon, stream);
  });
}

void RmsNormBackward(const RmsNormBackwardArgs& args, Stream& stream) {
  WithFloatType(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    NormArrays<T> a = ArraysOf<T>(args.x, args.gamma, args.inverse);
    a.grad_output = Required<T>(args.grad_output, args.x.num_elements());
    a.grad_input = Required<T>(args.grad_input, args.x.num_elements());
    a.grad_gamma = Optional<T>(args.grad_gamma, a.columns);
    Backward(a, stream);
  });
}

}  // namespace tandem::kernels
