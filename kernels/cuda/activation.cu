#include "kernels/cuda/device/map.cuh"
#include "kernels/cuda/kernels.h"

namespace tandem::kernels::cuda {

namespace {

// Exactly 0 and 1 at the ends of the range; absolute error below 2e-7. The fast division correctly
// gives 0 for a denominator above 2^126.
__device__ inline float Sigmoid(float x) { return __fdividef(1.0f, 1.0f + expf(-x)); }

// x Phi(x), and Phi(x) + x phi(x).
struct Gelu {
  static __device__ float Below(float x) { return fmaf(0.5f, erff(x * 0.70710678f), 0.5f); }
  static __device__ float Value(float x) { return x * Below(x); }
  static __device__ float Derivative(float x) {
    return fmaf(x, 0.39894228f * expf(-0.5f * x * x), Below(x));
  }
};

// GELU's approximation by tanh: x / 2 (1 + tanh(u)) with u = sqrt(2 / pi) (x + 0.044715 x^3), which
// equals x sigmoid(2 u).
struct GeluTanh {
  // 2 sqrt(2 / pi), and 0.044715 times that
  static constexpr float kLinear = 1.5957691216f, kCubic = 0.0713548162f;
  static __device__ float Gate(float x) { return Sigmoid(x * fmaf(kCubic, x * x, kLinear)); }
  static __device__ float Value(float x) { return x * Gate(x); }
  static __device__ float Derivative(float x) {
    const float s = Gate(x);
    return fmaf(x * s * (1.0f - s), fmaf(3 * kCubic, x * x, kLinear), s);
  }
};

struct Relu {
  static __device__ float Value(float x) { return x > 0.0f ? x : 0.0f; }
  static __device__ float Derivative(float x) { return x > 0.0f ? 1.0f : 0.0f; }
};

// x sigmoid(x).
struct Silu {
  static __device__ float Value(float x) { return x * Sigmoid(x); }
  static __device__ float Derivative(float x) {
    const float s = Sigmoid(x);
    return s * fmaf(x, 1.0f - s, 1.0f);
  }
};

struct SigmoidAlone {
  static __device__ float Value(float x) { return Sigmoid(x); }
  static __device__ float Derivative(float x) {
    const float s = Sigmoid(x);
    return s * (1.0f - s);
  }
};

template <class Function>
struct Forward {
  __device__ float operator()(float x) const { return Function::Value(x); }
};
template <class Function>
struct Backward {
  __device__ float operator()(float grad, float x) const { return grad * Function::Derivative(x); }
};

// One half of rows of 2 `columns` elements, next to an output of `columns`.
template <class T>
struct HalfRows {
  static constexpr int kWidth = kPackOf<T>;
  const T* data;  // the half of the first row
  int64_t columns;

  bool TakesWidth(int) const { return TakesPacks<T>(data, columns); }
  __device__ int64_t PlaceOf(int64_t i) const { return i / columns * 2 * columns + i % columns; }
  template <bool kPacks, int kCount>
  __device__ void Read(int64_t place, int64_t left, float (&x)[kCount]) const {
    ReadElements<kPacks>(data + place, left, x);
  }
};

struct SwiGlu {
  __device__ float operator()(float gate, float up) const { return Silu::Value(gate) * up; }
};

// Computes kWidth columns of a row and both their gradients, at places that allow packs of kWidth
// elements.
template <class T, int kWidth>
__global__ void SwiGluBackwardKernel(int64_t count, int64_t columns, const T* grad_output,
                                     const T* x, T* grad_input) {
  const int64_t i = (int64_t{blockIdx.x} * kMapThreads + threadIdx.x) * kWidth;
  if (i >= count) return;
  const int64_t gates = i / columns * 2 * columns + i % columns, ups = gates + columns;
  float grad[kWidth], gate[kWidth], up[kWidth], grad_gate[kWidth], grad_up[kWidth];
  ReadElements<true>(grad_output + i, kWidth, grad);
  ReadElements<true>(x + gates, kWidth, gate);
  ReadElements<true>(x + ups, kWidth, up);
  TANDEM_UNROLL
  for (int e = 0; e < kWidth; ++e) {
    grad_gate[e] = grad[e] * up[e] * Silu::Derivative(gate[e]);
    grad_up[e] = grad[e] * Silu::Value(gate[e]);
  }
  WriteElements<true>(grad_input + gates, kWidth, grad_gate);
  WriteElements<true>(grad_input + ups, kWidth, grad_up);
}

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

}  // namespace

void ActivationForward(const ArrayView& output, const ArrayView& x, Activation activation,
                       Stream& stream) {
  WithDeviceType(x.dtype, [&](auto zero) {
    WithActivation(activation, [&](auto function) {
      using T = decltype(zero);
      Map<T>({"activation", output}, stream, Forward<decltype(function)>{}, Elements<T>{x.as<T>()});
    });
  });
}

void ActivationBackward(const ArrayView& grad_input, const ArrayView& grad_output,
                        const ArrayView& x, Activation activation, Stream& stream) {
  WithDeviceType(x.dtype, [&](auto zero) {
    WithActivation(activation, [&](auto function) {
      using T = decltype(zero);
      Map<T>({"activation_backward", grad_input}, stream, Backward<decltype(function)>{},
             Elements<T>{grad_output.as<T>()}, Elements<T>{x.as<T>()});
    });
  });
}

void SwiGluForward(const ArrayView& output, const ArrayView& x, Stream& stream) {
  const int64_t columns = output.shape[-1];
  WithDeviceType(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    Map<T>({"swiglu", output}, stream, SwiGlu{}, HalfRows<T>{x.as<T>(), columns},
           HalfRows<T>{x.as<T>() + columns, columns});
  });
}

void SwiGluBackward(const ArrayView& grad_input, const ArrayView& grad_output, const ArrayView& x,
                    Stream& stream) {
  const int64_t count = grad_output.num_elements(), columns = grad_output.shape[-1];
  WithDeviceType(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto launch = [&](auto width) {
      const int64_t blocks = CeilDiv(count, int64_t{kMapThreads} * decltype(width)::value);
      Launch(stream, {"swiglu_backward", grad_input},
             Grid{static_cast<unsigned>(blocks), kMapThreads},
             SwiGluBackwardKernel<T, decltype(width)::value>, count, columns, grad_output.as<T>(),
             x.as<T>(), grad_input.as<T>());
    };
    const bool packs = TakesPacks<T>(grad_output.data, columns) && TakesPacks<T>(x.data, columns) &&
                       TakesPacks<T>(grad_input.data, columns);
    if (packs)
      launch(std::integral_constant<int, kPackOf<T>>());
    else
      launch(std::integral_constant<int, 1>());
  });
}

}  // namespace tandem::kernels::cuda
