#include "kernels/cuda/kernels.h"
#include "kernels/cuda/plan/dropout_plan.h"
#include "kernels/elementwise.h"
#include "tests/kernels/cuda/device_arrays.h"

namespace tandem::kernels {
namespace {

TEST(DropoutPlanTest, BlocksCoverEveryRowWhereverItStarts) {
  for (int64_t columns = 1; columns < 200; ++columns) {
    for (int64_t phase = 0; phase < 8; ++phase) {
      if (columns % 8 == 0 && phase > 0) continue;
      for (bool has_mask : {false, true}) {
        int64_t covered = 0;
        const int64_t blocks = cuda::DropoutBlocksPerRow(columns, has_mask);
        for (int64_t b = 0; b < blocks; ++b) {
          const uint32_t bits = cuda::ElementsInRow(8 * b - phase, columns);
          for (int e = 0; e < 8; ++e) {
            const int64_t column = 8 * b - phase + e;
            ASSERT_EQ((bits >> e & 1) != 0, column >= 0 && column < columns)
                << columns << " " << phase << " " << b;
          }
          covered += __builtin_popcount(bits);
        }
        ASSERT_EQ(covered, columns);
        // The random blocks cover every bit of the mask's bytes.
        if (has_mask) {
          ASSERT_GE(8 * blocks - phase, 8 * cuda::MaskRowBytes(columns));
        }
      }
    }
  }
}

class DropoutDeviceTest : public DeviceTest {
 protected:
  // Row indices far apart, in no order, the last beyond 2^40.
  static Array<int64_t> Rows(int64_t rows) {
    Array<int64_t> index({rows});
    for (int64_t r = 0; r < rows; ++r) index[r] = r % 3 == 0 ? r * 1000003 : rows - r;
    if (rows > 1) index[rows - 1] = (int64_t{1} << 40) + 5;
    return index;
  }

  // Expects the CPU's mask bits and values. Views begin `shift` elements into their arrays, so that
  // packs are impossible.
  template <class T>
  void Check(int64_t rows, int64_t columns, float probability, bool has_mask, int64_t shift) {
    const Array<T> x = RoundedTo<T>(RandomFor<T>({rows * columns + shift}, 1));
    Array<int64_t> index = Rows(rows);
    const int64_t words = DropoutMaskWords(columns);
    Array<T> wanted = Poisoned<T>(x.shape), wanted_grad = wanted, input = x;
    Array<uint64_t> mask = Poisoned<uint64_t>({rows, words});
    const auto view = [&](T* data) { return DenseView(data + shift, {rows, columns}); };
    DropoutArgs args{
        view(input.values.data()), view(wanted.values.data()), index, probability, {42, 7}, 9};
    args.mask = mask;
    kernels::Dropout(args, cpu());
    kernels::DropoutBackward(
        {view(input.values.data()), view(wanted_grad.values.data()), mask, probability}, cpu());

    OnDevice<T> device_x(x, device()), output(Poisoned<T>(x.shape), device()),
        grad(Poisoned<T>(x.shape), device());
    OnDevice<int64_t> device_index(index, device());
    OnDevice<uint64_t> device_mask(Poisoned<uint64_t>({rows, words}), device());
    DropoutArgs device_args{
        view(device_x.data()), view(output.data()), device_index, probability, {42, 7}, 9};
    if (has_mask) device_args.mask = device_mask;
    for (int run = 0; run < 2; ++run) {
      cuda::Dropout(device_args, device());
      ExpectBits(output.Get(), wanted);
      if (!has_mask) continue;
      cuda::DropoutBackward({view(device_x.data()), view(grad.data()), device_mask, probability},
                            device());
      ExpectBits(grad.Get(), wanted_grad);
      const Array<uint64_t> found = device_mask.Get();
      for (int64_t i = 0; i < mask.size(); ++i)
        ASSERT_EQ(found[i], mask[i]) << "word " << i << ", columns " << columns;
    }
  }

  template <class T>
  static void ExpectBits(const Array<T>& found, const Array<T>& wanted) {
    for (int64_t i = 0; i < found.size(); ++i) {
      ASSERT_EQ(std::memcmp(&found[i], &wanted[i], sizeof(T)), 0)
          << "element " << i << ": " << AsDouble(found[i]) << ", wanted " << AsDouble(wanted[i]);
    }
  }
};

TEST_F(DropoutDeviceTest, SameBitsAsOnTheCpuForEveryWidthOfRows) {
  for (int64_t columns : {1, 3, 7, 8, 17, 50, 64, 65, 72, 128, 333, 512}) {
    Check<float>(5, columns, 0.3f, true, 0);
    Check<BFloat16>(5, columns, 0.3f, true, 0);
    Check<float>(5, columns, 0.3f, false, 0);
  }
  Check<BFloat16>(70, 520, 0.1f, true, 0);
}

TEST_F(DropoutDeviceTest, MisalignedArraysGetTheSameBits) {
  for (int64_t columns : {8, 64, 96, 260}) {
    Check<float>(9, columns, 0.5f, true, 1);
    Check<BFloat16>(9, columns, 0.5f, true, 1);
    Check<BFloat16>(9, columns, 0.5f, false, 4);
  }
}

TEST_F(DropoutDeviceTest, ProbabilityZeroKeepsEverythingAndNearlyOneAlmostNothing) {
  for (float probability : {0.0f, 0.999999f}) {
    Check<float>(6, 64, probability, true, 0);
    Check<float>(6, 65, probability, true, 0);
  }
}

TEST_F(DropoutDeviceTest, EmptyArraysAreLeftAlone) {
  Check<float>(0, 64, 0.5f, true, 0);
  Check<float>(5, 0, 0.5f, true, 0);
  Check<BFloat16>(0, 3, 0.5f, false, 0);
}

TEST_F(DropoutDeviceTest, WorksInPlaceAndDropsNaN) {
  for (int64_t columns : {64, 65}) {
    Array<float> x = RandomArray<float>({4, columns}, 1);
    x[5] = std::numeric_limits<float>::quiet_NaN();
    Array<float> wanted = x;
    Array<int64_t> index = Consecutive(4, 3);
    kernels::Dropout({wanted, wanted, index, 0.5f, {1, 2}, 3}, cpu());
    OnDevice<float> y(x, device());
    OnDevice<int64_t> device_index(index, device());
    cuda::Dropout({y, y, device_index, 0.5f, {1, 2}, 3}, device());
    const Array<float> found = y.Get();
    for (int64_t i = 0; i < x.size(); ++i) {
      ASSERT_TRUE(found[i] == wanted[i] || (std::isnan(found[i]) && std::isnan(wanted[i]))) << i;
    }
  }
}

}  // namespace
}  // namespace tandem::kernels
