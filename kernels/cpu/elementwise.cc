#include "kernels/elementwise.h"

#include <cstring>

#include "kernels/cpu/vector/map.h"
#include "kernels/cuda/kernels.h"
#include "kernels/memory/kernel_span.h"

namespace tandem::kernels {

namespace {

double BytesOf(std::initializer_list<const ArrayView*> views) {
  double bytes = 0;
  for (const ArrayView* view : views) bytes += static_cast<double>(view->num_bytes());
  return bytes;
}

}  // namespace

void Fill(const ArrayView& x, double value, Stream& stream) {
  TANDEM_CHECK(x.is_dense()) << x.shape;
  const KernelSpan span(stream, SpanKind::ELEMENTWISE, "fill", 0, BytesOf({&x}));
  if (stream.on_cuda()) return cuda::Fill(x, value, stream);
  if (value == 0) {
    if (x.num_bytes() > 0) std::memset(x.data, 0, x.num_bytes());
    return;
  }
  const auto fill = [&](auto zero) {
    using T = decltype(zero);
    Map<T>(x, stream, 1, [element = static_cast<Compute<T>>(value)] { return element; });
  };
  switch (x.dtype) {
    case DType::I64:
      return fill(int64_t{});
    case DType::U64:
      return fill(uint64_t{});
    case DType::U8:
      return fill(uint8_t{});
    default:
      WithStorageType(x.dtype, fill);
  }
}

void Copy(const ArrayView& output, const ArrayView& input, Stream& stream) {
  CheckSame(output, input);
  if (output.data == input.data) return;
  const KernelSpan span(stream, SpanKind::ELEMENTWISE, "copy", 0, BytesOf({&output, &input}));
  if (stream.on_cuda()) return cuda::Copy(output, input, stream);
  constexpr int64_t kPiece = 1 << 18;
  const int64_t num_bytes = static_cast<int64_t>(output.num_bytes());
  stream.pool().ParallelFor((num_bytes + kPiece - 1) / kPiece, [&](int64_t piece) {
    const int64_t begin = piece * kPiece;
    std::memcpy(static_cast<char*>(output.data) + begin,
                static_cast<const char*>(input.data) + begin,
                static_cast<size_t>(std::min(kPiece, num_bytes - begin)));
  });
}

void CopyRows(const ArrayView& output, const ArrayView& input, Stream& stream) {
  TANDEM_CHECK(output.dtype == input.dtype && output.shape == input.shape &&
               output.shape.num_dims() == 2)
      << NameOf(output.dtype) << " " << output.shape << " and " << NameOf(input.dtype) << " "
      << input.shape;
  TANDEM_CHECK(output.strides[1] == 1 && input.strides[1] == 1)
      << output.strides << " and " << input.strides;
  const KernelSpan span(stream, SpanKind::ELEMENTWISE, "copy_rows", 0, BytesOf({&output, &input}));
  if (stream.on_cuda()) return cuda::CopyRows(output, input, stream);
  const size_t element = SizeOf(output.dtype),
               width = static_cast<size_t>(output.shape[1]) * element;
  for (int64_t r = 0; r < output.shape[0] && width > 0; ++r) {
    std::memcpy(
        static_cast<char*>(output.data) + static_cast<size_t>(r * output.strides[0]) * element,
        static_cast<const char*>(input.data) + static_cast<size_t>(r * input.strides[0]) * element,
        width);
  }
}

void Add(const ArrayView& output, const ArrayView& a, const ArrayView& b, Stream& stream) {
  CheckDense(output, a);
  CheckDense(output, b);
  const KernelSpan span(stream, SpanKind::ELEMENTWISE, "add", 0, BytesOf({&output, &a, &b}));
  if (stream.on_cuda()) return cuda::Add(output, a, b, stream);
  WithStorageTypes(a.dtype, b.dtype, [&](auto zero_a, auto zero_b) {
    using A = decltype(zero_a);
    using B = decltype(zero_b);
    using T = std::conditional_t<std::is_same_v<A, B>, A, float>;
    Map<T>(
        output, stream, 1, [](auto x, auto y) { return x + y; }, a.as<A>(), b.as<B>());
  });
}

void AddScaled(const ArrayView& output, const ArrayView& x, double scale, Stream& stream) {
  CheckSame(output, x);
  const KernelSpan span(stream, SpanKind::ELEMENTWISE, "add_scaled", 0,
                        BytesOf({&output, &output, &x}));
  if (stream.on_cuda()) return cuda::AddScaled(output, x, scale, stream);
  WithStorageType(output.dtype, [&](auto zero) {
    using T = decltype(zero);
    Map<T>(
        output, stream, 1,
        [s = static_cast<Compute<T>>(scale)](auto old, auto v) { return old + s * v; },
        output.as<T>(), x.as<T>());
  });
}

void Scale(const ArrayView& output, const ArrayView& x, double scale, Stream& stream) {
  CheckSame(output, x);
  const KernelSpan span(stream, SpanKind::ELEMENTWISE, "scale", 0, BytesOf({&output, &x}));
  if (stream.on_cuda()) return cuda::Scale(output, x, scale, stream);
  WithStorageType(output.dtype, [&](auto zero) {
    using T = decltype(zero);
    Map<T>(
        output, stream, 1, [s = static_cast<Compute<T>>(scale)](auto v) { return s * v; },
        x.as<T>());
  });
}

void Multiply(const ArrayView& output, const ArrayView& a, const ArrayView& b, Stream& stream) {
  CheckDense(output, a);
  CheckDense(output, b);
  const KernelSpan span(stream, SpanKind::ELEMENTWISE, "multiply", 0, BytesOf({&output, &a, &b}));
  if (stream.on_cuda()) return cuda::Multiply(output, a, b, stream);
  WithStorageTypes(a.dtype, b.dtype, [&](auto zero_a, auto zero_b) {
    using A = decltype(zero_a);
    using B = decltype(zero_b);
    using T = std::conditional_t<std::is_same_v<A, B>, A, float>;
    Map<T>(
        output, stream, 1, [](auto x, auto y) { return x * y; }, a.as<A>(), b.as<B>());
  });
}

void AddBias(const ArrayView& output, const ArrayView& x, const ArrayView& bias, Stream& stream) {
  CheckSame(output, x);
  const int64_t rows = x.shape.num_rows(), columns = x.shape[-1];
  TANDEM_CHECK_EQ(bias.num_elements(), columns);
  const KernelSpan span(stream, SpanKind::ELEMENTWISE, "add_bias", 0,
                        BytesOf({&output, &x, &bias}));
  if (stream.on_cuda()) return cuda::AddBias(output, x, bias, stream);
  WithStorageTypes(x.dtype, bias.dtype, [&](auto zero, auto bias_zero) {
    using T = decltype(zero);
    using B = decltype(bias_zero);
    const T* from = x.as<T>();
    const B* add = bias.as<B>();
    T* out = output.as<T>();
    ParallelRows(stream, rows, columns, [=](int64_t begin, int64_t end) {
      Vectorised([=] {
        for (int64_t r = begin; r < end; ++r) {
#pragma GCC ivdep
          for (int64_t c = 0; c < columns; ++c)
            out[r * columns + c] = Store<T>(Load(from[r * columns + c]) + Load(add[c]));
        }
      });
    });
  });
}

void AddWhereEqual(const ArrayView& output, const ArrayView& x, const ArrayView& row_id,
                   const ArrayView& column_id, double value, Stream& stream) {
  CheckSame(output, x);
  const int64_t rows = x.shape[0], columns = x.shape[1];
  TANDEM_CHECK_EQ(row_id.num_elements(), rows);
  TANDEM_CHECK_EQ(column_id.num_elements(), columns);
  const KernelSpan span(stream, SpanKind::ELEMENTWISE, "add_where_equal", 0,
                        BytesOf({&output, &x}));
  if (stream.on_cuda()) return cuda::AddWhereEqual(output, x, row_id, column_id, value, stream);
  const int64_t *row_ids = row_id.as<int64_t>(), *column_ids = column_id.as<int64_t>();
  WithStorageType(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* from = x.as<T>();
    T* out = output.as<T>();
    const auto add = static_cast<Compute<T>>(value);
    ParallelRows(stream, rows, columns, [=](int64_t begin, int64_t end) {
      Vectorised([=] {
        for (int64_t r = begin; r < end; ++r) {
          const int64_t id = row_ids[r];
#pragma GCC ivdep
          for (int64_t c = 0; c < columns; ++c) {
            const Compute<T> element = Load(from[r * columns + c]);
            out[r * columns + c] = Store<T>(column_ids[c] == id ? element + add : element);
          }
        }
      });
    });
  });
}

}  // namespace tandem::kernels
