#include "kernels/cpu/vector/map.h"
#include "kernels/cpu/vector/math.h"
#include "kernels/cuda/kernels.h"
#include "kernels/elementwise.h"
#include "kernels/memory/kernel_span.h"

namespace tandem::kernels {

namespace {

// The cost of an exponential and a division, in additions that wait for memory.
constexpr int64_t kMathCost = 2;

// x Phi(x).
struct Gelu {
  template <class T>
  static T Value(T x) {
    return x * NormalAt(x).below;
  }
  template <class T>
  static T Derivative(T x) {
    const Normal<T> normal = NormalAt(x);
    return Fma(x, normal.density, normal.below);
  }
};

// GELU's approximation by tanh: x / 2 (1 + tanh(u)) with u = sqrt(2 / pi) (x + 0.044715 x^3), which
// equals x sigmoid(2 u).
struct GeluTanh {
  static constexpr double kLinear = 2 * 0.79788456080286535588, kCubic = 0.044715 * kLinear;
  template <class T>
  static T Gate(T x) {
    return Sigmoid(x * Fma(T(kCubic), x * x, T(kLinear)));
  }
  template <class T>
  static T Value(T x) {
    return x * Gate(x);
  }
  template <class T>
  static T Derivative(T x) {
    const T s = Gate(x);
    return Fma(x * s * (T(1) - s), Fma(T(3 * kCubic), x * x, T(kLinear)), s);
  }
};

struct Relu {
  template <class T>
  static T Value(T x) {
    return x > T(0) ? x : T(0);
  }
  template <class T>
  static T Derivative(T x) {
    return x > T(0) ? T(1) : T(0);
  }
};

// x sigmoid(x).
struct Silu {
  template <class T>
  static T Value(T x) {
    return x * Sigmoid(x);
  }
  template <class T>
  static T Derivative(T x) {
    const T s = Sigmoid(x);
    return s * Fma(x, T(1) - s, T(1));
  }
};

struct SigmoidAlone {
  template <class T>
  static T Value(T x) {
    return Sigmoid(x);
  }
  template <class T>
  static T Derivative(T x) {
    const T s = Sigmoid(x);
    return s * (T(1) - s);
  }
};

template <class Body>
void WithActivation(Activation activation, const Body& body) {
  switch (activation) {
    case Activation::GELU:
      return body(Gelu{});
    case Activation::GELU_TANH:
      return body(GeluTanh{});
    case Activation::RELU:
      return body(Relu{});
    case Activation::SILU:
      return body(Silu{});
    case Activation::SIGMOID:
      return body(SigmoidAlone{});
  }
}

// REQUIRES: wide [R, 2 F] and narrow [R, F] do not overlap.
void CheckHalves(const ArrayView& wide, const ArrayView& narrow) {
  TANDEM_CHECK(wide.dtype == narrow.dtype) << NameOf(wide.dtype) << " and " << NameOf(narrow.dtype);
  TANDEM_CHECK(wide.is_dense() && narrow.is_dense()) << wide.strides << " and " << narrow.strides;
  TANDEM_CHECK(wide.shape[-1] == 2 * narrow.shape[-1] &&
               wide.num_elements() == 2 * narrow.num_elements())
      << wide.shape << " and " << narrow.shape;
  TANDEM_CHECK(wide.data != narrow.data || wide.num_elements() == 0);
}

}  // namespace

void ActivationForward(const ArrayView& output, const ArrayView& x, Activation activation,
                       Stream& stream) {
  CheckSame(output, x);
  const KernelSpan span(stream, SpanKind::ACTIVATION, "activation", 0,
                        2.0 * static_cast<double>(x.num_bytes()));
  if (stream.on_cuda()) return cuda::ActivationForward(output, x, activation, stream);
  WithStorageType(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    WithActivation(activation, [&](auto function) {
      Map<T>(
          output, stream, kMathCost, [](auto v) { return decltype(function)::Value(v); },
          x.as<T>());
    });
  });
}

void ActivationBackward(const ArrayView& grad_input, const ArrayView& grad_output,
                        const ArrayView& x, Activation activation, Stream& stream) {
  CheckSame(grad_input, grad_output);
  CheckSame(grad_input, x);
  const KernelSpan span(stream, SpanKind::ACTIVATION, "activation_backward", 0,
                        3.0 * static_cast<double>(x.num_bytes()));
  if (stream.on_cuda())
    return cuda::ActivationBackward(grad_input, grad_output, x, activation, stream);
  WithStorageType(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    WithActivation(activation, [&](auto function) {
      Map<T>(
          grad_input, stream, kMathCost,
          [](auto grad, auto v) { return grad * decltype(function)::Derivative(v); },
          grad_output.as<T>(), x.as<T>());
    });
  });
}

void SwiGluForward(const ArrayView& output, const ArrayView& x, Stream& stream) {
  CheckHalves(x, output);
  const KernelSpan span(stream, SpanKind::ACTIVATION, "swiglu", 0,
                        1.5 * static_cast<double>(x.num_bytes()));
  if (stream.on_cuda()) return cuda::SwiGluForward(output, x, stream);
  WithStorageType(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const int64_t columns = output.shape[-1];
    const T* from = x.as<T>();
    T* to = output.as<T>();
    ParallelRows(stream, x.shape.num_rows(), kMathCost * columns, [=](int64_t begin, int64_t end) {
      Vectorised([=] {
        for (int64_t r = begin; r < end; ++r) {
          const T* gate = from + 2 * r * columns;
          MapRun(
              columns, to + r * columns, [](auto g, auto u) { return Silu::Value(g) * u; }, gate,
              gate + columns);
        }
      });
    });
  });
}

void SwiGluBackward(const ArrayView& grad_input, const ArrayView& grad_output, const ArrayView& x,
                    Stream& stream) {
  CheckHalves(x, grad_output);
  CheckHalves(grad_input, grad_output);
  TANDEM_CHECK(grad_input.data != x.data || x.num_elements() == 0);
  const KernelSpan span(stream, SpanKind::ACTIVATION, "swiglu_backward", 0,
                        2.5 * static_cast<double>(x.num_bytes()));
  if (stream.on_cuda()) return cuda::SwiGluBackward(grad_input, grad_output, x, stream);
  WithStorageType(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const int64_t columns = grad_output.shape[-1];
    const T *grads = grad_output.as<T>(), *from = x.as<T>();
    T* to = grad_input.as<T>();
    ParallelRows(
        stream, x.shape.num_rows(), 2 * kMathCost * columns, [=](int64_t begin, int64_t end) {
          Vectorised([=] {
            for (int64_t r = begin; r < end; ++r) {
              const T *grad = grads + r * columns, *gate = from + 2 * r * columns;
              T* out = to + 2 * r * columns;
              MapRun(
                  columns, out, [](auto d, auto g, auto u) { return d * u * Silu::Derivative(g); },
                  grad, gate, gate + columns);
              MapRun(
                  columns, out + columns, [](auto d, auto g) { return d * Silu::Value(g); }, grad,
                  gate);
            }
          });
        });
  });
}

}  // namespace tandem::kernels
