// Arrays on the device for tests that compare its kernels with the CPU's. The same tests run twice.
// They run on a GPU (label gpu, skipped without one) and in tests/emulator, where a CPU runs the
// kernels' source thread by thread.
#pragma once

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <memory>
#include <vector>

#include "kernels/base/device.h"
#include "kernels/memory/buffer.h"
#include "kernels/memory/cuda_runtime_calls.h"
#include "tests/kernels/bf16_arrays.h"
#include "tests/kernels/random_arrays.h"

namespace tandem::kernels {

inline constexpr Device kCudaDevice{DeviceKind::CUDA, 0};

// A test with a stream of each kind. Skips without a device.
class DeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const CudaInfo info = QueryCuda();
    if (info.num_devices == 0) GTEST_SKIP() << info.why_none;
    stream_ = std::make_unique<Stream>(&pool_, kCudaDevice);
  }
  void TearDown() override {
    if (stream_) {
      EXPECT_TRUE(stream_->Wait().ok()) << stream_->status().ToString();
    }
  }
  Stream& cpu() { return cpu_; }
  Stream& device() { return *stream_; }

 private:
  ThreadPool pool_{1};
  Stream cpu_{&pool_};
  std::unique_ptr<Stream> stream_;
};

// An array on the device, with guards around it. Make output arrays of an array full of NaN
// (Poisoned).
template <class T>
class OnDevice {
 public:
  OnDevice(const Array<T>& host, Stream& stream) : shape_(host.shape), stream_(stream) {
    buffer_ = Buffer::Allocate(num_bytes() + 2 * kGuard, kCudaDevice);
    std::vector<unsigned char> image(num_bytes() + 2 * kGuard, kGuardByte);
    if (num_bytes() > 0) std::memcpy(image.data() + kGuard, host.values.data(), num_bytes());
    EXPECT_TRUE(
        tandem::cuda::CopyAsync(buffer_->data(), image.data(), image.size(), stream.queue()).ok());
    EXPECT_TRUE(stream.Wait().ok()) << stream.status().ToString();
  }

  ArrayView view() const {
    return ArrayView(static_cast<char*>(buffer_->data()) + kGuard, DTypeOf<T>(), shape_);
  }
  operator ArrayView() const { return view(); }
  T* data() const { return view().template as<T>(); }

  // Returns the contents after all submitted work. Checks that the guards are still whole.
  Array<T> Get() const {
    std::vector<unsigned char> image(num_bytes() + 2 * kGuard);
    EXPECT_TRUE(stream_.Wait().ok()) << stream_.status().ToString();
    EXPECT_TRUE(
        tandem::cuda::CopyAsync(image.data(), buffer_->data(), image.size(), stream_.queue()).ok());
    EXPECT_TRUE(stream_.Wait().ok());
    for (size_t i = 0; i < kGuard; ++i) {
      EXPECT_EQ(image[i], kGuardByte) << "written " << kGuard - i << " bytes before the array";
      EXPECT_EQ(image[kGuard + num_bytes() + i], kGuardByte)
          << "written " << i << " bytes behind the array";
    }
    Array<T> host(shape_);
    if (num_bytes() > 0) std::memcpy(host.values.data(), image.data() + kGuard, num_bytes());
    return host;
  }

 private:
  static constexpr size_t kGuard = 256;  // keeps the array aligned as allocations are
  static constexpr unsigned char kGuardByte = 0xa5;
  size_t num_bytes() const { return static_cast<size_t>(shape_.num_elements()) * sizeof(T); }

  Shape shape_;
  Stream& stream_;
  std::shared_ptr<Buffer> buffer_;
};

// Fills an array that a kernel must overwrite: NaN in every float, ones in every bit of an integer.
template <class T>
Array<T> Poisoned(Shape shape) {
  Array<T> a(shape);
  std::memset(static_cast<void*>(a.values.data()), 0xff, a.values.size() * sizeof(T));
  return a;
}

template <class T>
double AsDouble(T x) {
  if constexpr (std::is_same_v<T, BFloat16>)
    return ToFloat(x);
  else
    return static_cast<double>(x);
}

// Rounds to T, element by element.
template <class T>
Array<T> RoundedTo(const Array<double>& from) {
  Array<T> to(from.shape);
  for (int64_t i = 0; i < from.size(); ++i) {
    if constexpr (std::is_same_v<T, BFloat16>)
      to[i] = ToBFloat16(static_cast<float>(from[i]));
    else
      to[i] = static_cast<T>(from[i]);
  }
  return to;
}
template <class T>
Array<double> Widened(const Array<T>& from) {
  Array<double> to(from.shape);
  for (int64_t i = 0; i < from.size(); ++i) to[i] = AsDouble(from[i]);
  return to;
}

// Returns |found - wanted| / |wanted| in the Euclidean norm, or |found - wanted| if |wanted| is 0.
// A NaN gives infinity.
template <class T>
double RelativeError(const Array<T>& found, const Array<double>& wanted) {
  EXPECT_EQ(found.size(), wanted.size());
  double difference = 0, norm = 0;
  for (int64_t i = 0; i < wanted.size(); ++i) {
    const double d = AsDouble(found[i]) - wanted[i];
    if (std::isnan(d)) return std::numeric_limits<double>::infinity();
    difference += d * d;
    norm += wanted[i] * wanted[i];
  }
  return std::sqrt(norm == 0 ? difference : difference / norm);
}
// The project's tolerances: f32 1e-5, bf16 1e-2.
template <class T>
inline constexpr double kDeviceTolerance = sizeof(T) == 4 ? 1e-5 : 1e-2;

// Uniform in (-range, range) and representable in T, as f64. The reference and the device, which
// rounds, get the same values.
template <class T>
Array<double> RandomFor(Shape shape, uint64_t seed, double range = 1) {
  return Widened(RoundedTo<T>(RandomArray<double>(shape, seed, range)));
}

}  // namespace tandem::kernels
