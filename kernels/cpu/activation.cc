#include "kernels/base/kernel_span.h"
#include "kernels/cpu/map.h"
#include "kernels/cpu/math.h"
#include "kernels/cuda/kernels.h"
#include "kernels/elementwise.h"

namespace tandem::kernels {

namespace {

constexpr int64_t kMathCost = 2;  // of an exponential and a division, in additions that wait for memory

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

// GELU's approximation by tanh, x / 2 (1 + tanh(u)) with u = sqrt(2 / pi) (x + 0.044715 x^3), is x sigmoid(2 u).
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

template <class Body>
void WithActivation(Activation activation, const Body& body) {
  switch (activation) {
    case Activation::GELU: return body(Gelu{});
    case Activation::GELU_TANH: return body(GeluTanh{});
    case Activation::RELU: return body(Relu{});
    case Activation::SILU: return body(Silu{});
  }
}

}  // namespace

void ActivationForward(const ArrayView& output, const ArrayView& x, Activation activation, Stream& stream) {
  CheckSame(output, x);
  const KernelSpan span(stream, SpanKind::ACTIVATION, "activation", 0, 2.0 * static_cast<double>(x.num_bytes()));
  if (stream.on_cuda()) return cuda::ActivationForward(output, x, activation, stream);
  WithStorageType(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    WithActivation(activation, [&](auto function) {
      Map<T>(output, stream, kMathCost, [](auto v) { return decltype(function)::Value(v); }, x.as<T>());
    });
  });
}

void ActivationBackward(const ArrayView& grad_input, const ArrayView& grad_output, const ArrayView& x,
                        Activation activation, Stream& stream) {
  CheckSame(grad_input, grad_output);
  CheckSame(grad_input, x);
  const KernelSpan span(stream, SpanKind::ACTIVATION, "activation_backward", 0,
                        3.0 * static_cast<double>(x.num_bytes()));
  if (stream.on_cuda()) return cuda::ActivationBackward(grad_input, grad_output, x, activation, stream);
  WithStorageType(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    WithActivation(activation, [&](auto function) {
      Map<T>(grad_input, stream, kMathCost, [](auto grad, auto v) { return grad * decltype(function)::Derivative(v); },
             grad_output.as<T>(), x.as<T>());
    });
  });
}

}  // namespace tandem::kernels
