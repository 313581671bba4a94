#include "kernels/cuda/stable_sort.cuh"

#include <algorithm>
#include <numeric>

#include "kernels/cuda/plan/stable_sort_plan.h"
#include "tests/kernels/cuda/device_arrays.h"

namespace tandem::kernels {
namespace {

TEST(StableSortPlanTest, PassesTakeTheBitsOfTheLargestValue) {
  EXPECT_EQ(cuda::SortPasses(0), 1);
  EXPECT_EQ(cuda::SortPasses(1), 1);
  EXPECT_EQ(cuda::SortPasses(256), 1);
  EXPECT_EQ(cuda::SortPasses(257), 2);
  EXPECT_EQ(cuda::SortPasses(65536), 2);
  EXPECT_EQ(cuda::SortPasses(65537), 3);
  EXPECT_EQ(cuda::SortPasses(int64_t{1} << 32), 4);
}

TEST(StableSortPlanTest, SpansAreWholeWarpsAndFew) {
  for (int64_t count :
       {int64_t{1}, int64_t{2048}, int64_t{262144}, int64_t{262145}, int64_t{1} << 31}) {
    const int64_t span = cuda::SortSpan(count);
    EXPECT_EQ(span % cuda::kSortThreads, 0);
    EXPECT_LE((count + span - 1) / span, 128);
  }
}

class StableSortDeviceTest : public DeviceTest {
 protected:
  static Array<uint32_t> FromDevice(const uint32_t* data, int64_t count, Stream& stream) {
    Array<uint32_t> host({count});
    EXPECT_TRUE(stream.Wait().ok()) << stream.status().ToString();
    EXPECT_TRUE(tandem::cuda::CopyAsync(host.values.data(), data, static_cast<size_t>(count) * 4,
                                        stream.queue())
                    .ok());
    EXPECT_TRUE(stream.Wait().ok());
    return host;
  }

  void Check(const Array<int64_t>& index, int64_t num_values) {
    const int64_t count = index.size();
    std::vector<uint32_t> order(static_cast<size_t>(count));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return index[a] < index[b]; });
    OnDevice<int64_t> device_index(index, device());
    for (int run = 0; run < 2; ++run) {
      const cuda::SortedIndex sorted = cuda::StableSort(device_index, num_values, device());
      const Array<uint32_t> keys = FromDevice(sorted.keys, count, device()),
                            places = FromDevice(sorted.places, count, device());
      for (int64_t p = 0; p < count; ++p) {
        ASSERT_EQ(places[p], order[static_cast<size_t>(p)]) << p << " of " << count;
        ASSERT_EQ(keys[p], index[places[p]]) << p << " of " << count;
      }
    }
  }

  static Array<int64_t> Random(int64_t count, int64_t num_values, uint64_t seed) {
    Array<int64_t> index({count});
    for (int64_t r = 0; r < count; ++r) {
      index[r] = static_cast<int64_t>(
          RandomBelow({seed, 1}, 0, static_cast<uint64_t>(r), static_cast<uint64_t>(num_values)));
    }
    return index;
  }
};

TEST_F(StableSortDeviceTest, EqualValuesStayInOrder) {
  for (int64_t count : {1, 3, 17, 64, 65, 255, 2048, 2049, 5000}) {
    for (int64_t num_values : {1, 2, 37, 256, 300}) Check(Random(count, num_values, 1), num_values);
  }
}

TEST_F(StableSortDeviceTest, TwoToFourPasses) {
  for (int64_t num_values : {int64_t{257}, int64_t{65536}, int64_t{65537}, (int64_t{1} << 24) + 1,
                             int64_t{4294967295}}) {
    Check(Random(3000, num_values, 2), num_values);
  }
}

TEST_F(StableSortDeviceTest, SortedAndReversedAndEqualValues) {
  Array<int64_t> ascending = Consecutive(4500), descending({4500}), equal({4500}, 4499);
  for (int64_t r = 0; r < 4500; ++r) descending[r] = 4499 - r;
  Check(ascending, 4500);
  Check(descending, 4500);
  Check(equal, 4500);
}

// More places than 128 of the smallest spans hold: every warp takes several turns of its part.
TEST_F(StableSortDeviceTest, ManyPlacesInLongSpans) {
  const int64_t count = 128 * 2048 + 777;
  ASSERT_GT(cuda::SortSpan(count), 2048);
  Check(Random(count, 200, 3), 200);
}

}  // namespace
}  // namespace tandem::kernels
