#include "kernels/elementwise.h"

#include <cstring>

#include "kernels/cpu/dropout_mask.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vectorise.h"

namespace tandem::kernels {

namespace {

void CheckSame(const ArrayView& output, const ArrayView& input) {
  TANDEM_CHECK_EQ(output.num_elements(), input.num_elements());
  TANDEM_CHECK(output.dtype == input.dtype) << NameOf(output.dtype) << " and " << NameOf(input.dtype);
  TANDEM_CHECK(output.is_dense() && input.is_dense()) << "shapes " << output.shape << " and " << input.shape;
}

// output[i] = f(i) over all elements, in parallel. Pointers in f may equal the output's.
template <class T, class Function>
void Map(const ArrayView& output, Stream& stream, int64_t cost, const Function& f) {
  T* out = output.as<T>();
  ParallelRows(stream, output.num_elements(), cost, [&](int64_t begin, int64_t end) {
    Vectorised([&] {
#pragma GCC ivdep
      for (int64_t i = begin; i < end; ++i) out[i] = f(i);
    });
  });
}

constexpr int64_t kMathCost = 8;  // of an exp or erf, in additions

template <class T>
T Gelu(T x) {
  return x * NormalAt(x).below;
}
template <class T>
T GeluGradient(T x) {
  const Normal<T> normal = NormalAt(x);
  return normal.below + x * normal.density;
}

// GELU's approximation by tanh: x / 2 (1 + tanh(u)), u = sqrt(2 / pi) (x + 0.044715 x^3).
constexpr double kGeluScale = 0.79788456080286535588, kGeluCubic = 0.044715;
template <class T>
T GeluTanh(T x) {
  return T(0.5) * x * (T(1) + Tanh(T(kGeluScale) * (x + T(kGeluCubic) * x * x * x)));
}
template <class T>
T GeluTanhGradient(T x) {
  const T t = Tanh(T(kGeluScale) * (x + T(kGeluCubic) * x * x * x));
  return T(0.5) * (T(1) + t) + T(0.5) * x * (T(1) - t * t) * T(kGeluScale) * (T(1) + T(3 * kGeluCubic) * x * x);
}

template <class T>
T SiluGradient(T x) {
  const T s = Sigmoid(x);
  return s * (T(1) + x * (T(1) - s));
}

template <class T>
void DropoutRows(const DropoutArgs& args, int64_t columns, int64_t begin, int64_t end) {
  const int64_t* row_index = args.row_index.as<int64_t>();
  const uint64_t folded_key = FoldKey(args.key);
  const int32_t threshold = DropThreshold(args.probability);
  const T scale = static_cast<T>(1.0 / (1.0 - args.probability));
  const T* x = args.x.as<T>();
  T* out = args.output.as<T>();
  const uint64_t step = args.step;
  Vectorised([&] {
    for (int64_t r = begin; r < end; ++r) {
      const T* from = x + r * columns;
      T* to = out + r * columns;
      const uint64_t first = static_cast<uint64_t>(row_index[r]) * static_cast<uint64_t>(columns);
      ForEachRandomWord(folded_key, step, first, columns, [=](int64_t i, uint32_t word) {
        to[i] = DropOrScale(word, threshold, from[i], scale);
      });
    }
  });
}

}  // namespace

void Fill(const ArrayView& x, double value, Stream& stream) {
  TANDEM_CHECK(x.is_dense()) << x.shape;
  if (value == 0) {
    if (x.num_bytes() > 0) std::memset(x.data, 0, x.num_bytes());
    return;
  }
  const auto fill = [&](auto zero) {
    using T = decltype(zero);
    const T element = static_cast<T>(value);
    Map<T>(x, stream, 1, [=](int64_t) { return element; });
  };
  switch (x.dtype) {
    case DType::I64: return fill(int64_t{});
    case DType::U64: return fill(uint64_t{});
    case DType::U8: return fill(uint8_t{});
    default: WithFloatType(x.dtype, fill);
  }
}

void Copy(const ArrayView& output, const ArrayView& input, Stream& stream) {
  CheckSame(output, input);
  if (output.data == input.data) return;
  constexpr int64_t kPiece = 1 << 18;
  const int64_t num_bytes = static_cast<int64_t>(output.num_bytes());
  stream.pool().ParallelFor((num_bytes + kPiece - 1) / kPiece, [&](int64_t piece) {
    const int64_t begin = piece * kPiece;
    std::memcpy(static_cast<char*>(output.data) + begin, static_cast<const char*>(input.data) + begin,
                static_cast<size_t>(std::min(kPiece, num_bytes - begin)));
  });
}

void Add(const ArrayView& output, const ArrayView& a, const ArrayView& b, Stream& stream) {
  CheckSame(output, a);
  CheckSame(output, b);
  WithFloatType(output.dtype, [&](auto zero) {
    using T = decltype(zero);
    Map<T>(output, stream, 1, [x = a.as<T>(), y = b.as<T>()](int64_t i) { return x[i] + y[i]; });
  });
}

void AddScaled(const ArrayView& output, const ArrayView& x, double scale, Stream& stream) {
  CheckSame(output, x);
  WithFloatType(output.dtype, [&](auto zero) {
    using T = decltype(zero);
    Map<T>(output, stream, 1, [old = output.as<T>(), x = x.as<T>(), s = static_cast<T>(scale)](int64_t i) {
      return old[i] + s * x[i];
    });
  });
}

void Scale(const ArrayView& output, const ArrayView& x, double scale, Stream& stream) {
  CheckSame(output, x);
  WithFloatType(output.dtype, [&](auto zero) {
    using T = decltype(zero);
    Map<T>(output, stream, 1, [x = x.as<T>(), s = static_cast<T>(scale)](int64_t i) { return s * x[i]; });
  });
}

void Multiply(const ArrayView& output, const ArrayView& a, const ArrayView& b, Stream& stream) {
  CheckSame(output, a);
  CheckSame(output, b);
  WithFloatType(output.dtype, [&](auto zero) {
    using T = decltype(zero);
    Map<T>(output, stream, 1, [x = a.as<T>(), y = b.as<T>()](int64_t i) { return x[i] * y[i]; });
  });
}

void AddBias(const ArrayView& output, const ArrayView& x, const ArrayView& bias, Stream& stream) {
  CheckSame(output, x);
  const int64_t rows = x.shape.num_rows(), columns = x.shape[-1];
  TANDEM_CHECK_EQ(bias.num_elements(), columns);
  WithFloatType(output.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T *from = x.as<T>(), *add = bias.as<T>();
    T* out = output.as<T>();
    ParallelRows(stream, rows, columns, [&](int64_t begin, int64_t end) {
      Vectorised([=] {
        for (int64_t r = begin; r < end; ++r) {
#pragma GCC ivdep
          for (int64_t c = 0; c < columns; ++c) out[r * columns + c] = from[r * columns + c] + add[c];
        }
      });
    });
  });
}

void ActivationForward(const ArrayView& output, const ArrayView& x, Activation activation, Stream& stream) {
  CheckSame(output, x);
  WithFloatType(output.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* from = x.as<T>();
    const auto map = [&](const auto& f) { Map<T>(output, stream, kMathCost, [=](int64_t i) { return f(from[i]); }); };
    switch (activation) {
      case Activation::GELU: return map([](T v) { return Gelu(v); });
      case Activation::GELU_TANH: return map([](T v) { return GeluTanh(v); });
      case Activation::RELU: return map([](T v) { return v > T(0) ? v : T(0); });
      case Activation::SILU: return map([](T v) { return v * Sigmoid(v); });
    }
  });
}

void ActivationBackward(const ArrayView& grad_input, const ArrayView& grad_output, const ArrayView& x,
                        Activation activation, Stream& stream) {
  CheckSame(grad_input, grad_output);
  CheckSame(grad_input, x);
  WithFloatType(grad_input.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T *from = x.as<T>(), *grad = grad_output.as<T>();
    const auto map = [&](const auto& derivative) {
      Map<T>(grad_input, stream, kMathCost, [=](int64_t i) { return grad[i] * derivative(from[i]); });
    };
    switch (activation) {
      case Activation::GELU: return map([](T v) { return GeluGradient(v); });
      case Activation::GELU_TANH: return map([](T v) { return GeluTanhGradient(v); });
      case Activation::RELU: return map([](T v) { return v > T(0) ? T(1) : T(0); });
      case Activation::SILU: return map([](T v) { return SiluGradient(v); });
    }
  });
}

void Dropout(const DropoutArgs& args, Stream& stream) {
  CheckSame(args.output, args.x);
  const int64_t rows = args.x.shape.num_rows(), columns = args.x.shape[-1];
  TANDEM_CHECK(args.probability >= 0 && args.probability < 1) << args.probability;
  if (args.probability == 0) return Copy(args.output, args.x, stream);
  TANDEM_CHECK_EQ(args.row_index.num_elements(), rows);
  WithFloatType(args.x.dtype, [&](auto zero) {
    ParallelRows(stream, rows, columns * kMathCost, [&](int64_t begin, int64_t end) {
      DropoutRows<decltype(zero)>(args, columns, begin, end);
    });
  });
}

}  // namespace tandem::kernels
