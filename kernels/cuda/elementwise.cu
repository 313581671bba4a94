#include "kernels/cuda/device/map.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/memory/cuda_runtime_calls.h"

// Sums of products are explicit fmaf. Otherwise the compiler could round them differently in the
// kernel for packs and the kernel for single elements.
namespace tandem::kernels::cuda {

namespace {

template <class T>
struct Constant {
  T value;
  __device__ T operator()() const { return value; }
};

struct Plus {
  __device__ float operator()(float a, float b) const { return a + b; }
};

struct PlusScaled {
  float scale;
  __device__ float operator()(float old, float x) const { return fmaf(scale, x, old); }
};

struct TimesConstant {
  float scale;
  __device__ float operator()(float x) const { return scale * x; }
};

// 1 if the row's id equals the column's id, else 0.
struct Matches {
  static constexpr int kWidth = 8;
  const int64_t *row_id, *column_id;
  int64_t columns;

  bool TakesWidth(int width) const { return columns % width == 0; }
  __device__ int64_t PlaceOf(int64_t i) const { return i; }
  template <bool kPacks, int kCount>
  __device__ void Read(int64_t place, int64_t left, float (&x)[kCount]) const {
    const int64_t id = row_id[place / columns], first = place % columns;
    TANDEM_UNROLL
    for (int e = 0; e < kCount; ++e) x[e] = e < left && column_id[first + e] == id ? 1.0f : 0.0f;
  }
};

struct PlusWhere {
  float value;
  __device__ float operator()(float x, float match) const { return match != 0 ? x + value : x; }
};

struct Times {
  __device__ float operator()(float a, float b) const { return a * b; }
};

}  // namespace

void Fill(const ArrayView& x, double value, Stream& stream) {
  const auto fill = [&](auto zero) {
    using T = decltype(zero);
    Map<T>({"fill", x}, stream, Constant<Compute<T>>{static_cast<Compute<T>>(value)});
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
  if (output.data == input.data || output.num_bytes() == 0 || !stream.status().ok()) return;
  stream.Fail(tandem::cuda::CopyAsync(output.data, input.data, output.num_bytes(), stream.queue()));
}

void Add(const ArrayView& output, const ArrayView& a, const ArrayView& b, Stream& stream) {
  WithDeviceType(a.dtype, [&](auto zero_a) {
    WithDeviceType(b.dtype, [&](auto zero_b) {
      using A = decltype(zero_a);
      using B = decltype(zero_b);
      using O = std::conditional_t<std::is_same_v<A, B>, A, float>;
      Map<O>({"add", output}, stream, Plus{}, Elements<A>{a.as<A>()}, Elements<B>{b.as<B>()});
    });
  });
}

void AddScaled(const ArrayView& output, const ArrayView& x, double scale, Stream& stream) {
  WithDeviceType(output.dtype, [&](auto zero) {
    using T = decltype(zero);
    Map<T>({"add_scaled", output}, stream, PlusScaled{static_cast<float>(scale)},
           Elements<T>{output.as<T>()}, Elements<T>{x.as<T>()});
  });
}

void Scale(const ArrayView& output, const ArrayView& x, double scale, Stream& stream) {
  WithDeviceType(output.dtype, [&](auto zero) {
    using T = decltype(zero);
    Map<T>({"scale", output}, stream, TimesConstant{static_cast<float>(scale)},
           Elements<T>{x.as<T>()});
  });
}

void Multiply(const ArrayView& output, const ArrayView& a, const ArrayView& b, Stream& stream) {
  WithDeviceType(a.dtype, [&](auto zero_a) {
    WithDeviceType(b.dtype, [&](auto zero_b) {
      using A = decltype(zero_a);
      using B = decltype(zero_b);
      using O = std::conditional_t<std::is_same_v<A, B>, A, float>;
      Map<O>({"multiply", output}, stream, Times{}, Elements<A>{a.as<A>()}, Elements<B>{b.as<B>()});
    });
  });
}

void AddWhereEqual(const ArrayView& output, const ArrayView& x, const ArrayView& row_id,
                   const ArrayView& column_id, double value, Stream& stream) {
  const Matches matches{row_id.as<int64_t>(), column_id.as<int64_t>(), x.shape[1]};
  WithDeviceType(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    Map<T>({"add_where_equal", output}, stream, PlusWhere{static_cast<float>(value)},
           Elements<T>{x.as<T>()}, matches);
  });
}

void AddBias(const ArrayView& output, const ArrayView& x, const ArrayView& bias, Stream& stream) {
  WithDeviceType(x.dtype, [&](auto zero) {
    WithDeviceType(bias.dtype, [&](auto bias_zero) {
      using T = decltype(zero);
      using B = decltype(bias_zero);
      Map<T>({"add_bias", output}, stream, Plus{}, Elements<T>{x.as<T>()},
             PerColumn<B>{bias.as<B>(), x.shape[-1]});
    });
  });
}

}  // namespace tandem::kernels::cuda
