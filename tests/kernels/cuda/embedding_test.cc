#include "kernels/embedding.h"

#include <set>

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/plan/embedding_plan.h"
#include "tests/kernels/cuda/placed_array.h"

namespace tandem::kernels {
namespace {

TEST(EmbeddingPlanTest, WordsDivideRowsAndAddresses) {
  EXPECT_EQ(cuda::RowWordBytes(64, 256, 4096), 16u);
  EXPECT_EQ(cuda::RowWordBytes(24, 256, 4096), 8u);
  EXPECT_EQ(cuda::RowWordBytes(64, 260, 4096), 4u);
  EXPECT_EQ(cuda::RowWordBytes(6, 256, 4096), 2u);
  EXPECT_EQ(cuda::RowWordBytes(16, 256, 4097), 1u);
}

// Segments of many lengths one behind another: no two pieces share a slot, and all slots lie
// inside.
TEST(EmbeddingPlanTest, PiecesOfLongSegmentsHaveSlotsOfTheirOwn) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    std::set<int64_t> slots;
    int64_t begin = 0;
    for (uint64_t s = 0; s < 100; ++s) {
      const int64_t length =
          1 + static_cast<int64_t>(RandomBelow({seed, 3}, 0, s, s % 3 == 0 ? 200 : 40));
      for (int64_t head = begin; length > cuda::kPieceRows && head < begin + length;
           head += cuda::kPieceRows) {
        EXPECT_TRUE(slots.insert(cuda::PartialSlot(head, head == begin)).second) << head;
      }
      begin += length;
    }
    ASSERT_FALSE(slots.empty());
    EXPECT_LT(*slots.rbegin(), cuda::NumPartialSlots(begin));
  }
}

class EmbeddingDeviceTest : public DeviceTest {
 protected:
  // Draws `hot` in 8 elements as value 2, the others uniformly below `num_values`.
  static Array<int64_t> Index(int64_t count, int64_t num_values, uint64_t hot) {
    Array<int64_t> index({count});
    for (int64_t r = 0; r < count; ++r) {
      const uint64_t element = static_cast<uint64_t>(r);
      index[r] = RandomBelow({5, 1}, 0, element, 8) < hot
                     ? std::min<int64_t>(2, num_values - 1)
                     : static_cast<int64_t>(
                           RandomBelow({5, 2}, 0, element, static_cast<uint64_t>(num_values)));
    }
    return index;
  }

  template <class T>
  void CheckGather(int64_t count, int64_t columns, int64_t shift) {
    const int64_t num_rows = 37;
    Array<T> table = RoundedTo<T>(RandomFor<T>({num_rows * columns + shift}, 1));
    const Array<int64_t> index = Index(count, num_rows, 0);
    OnDevice<T> device_table(table, device()), output(Poisoned<T>({count * columns}), device());
    OnDevice<int64_t> device_index(index, device());
    cuda::GatherRows(DenseView(output.data(), {count, columns}),
                     DenseView(device_table.data() + shift, {num_rows, columns}), device_index,
                     device());
    const Array<T> found = output.Get();
    for (int64_t i = 0; i < found.size(); ++i) {
      const T wanted = table[shift + index[i / columns] * columns + i % columns];
      ASSERT_EQ(std::memcmp(&found[i], &wanted, sizeof(T)), 0) << i << ", columns " << columns;
    }
  }

  // Compares with the f64 reference, twice for equal bits, with and without the old output.
  template <class T>
  void CheckScatter(int64_t count, int64_t num_rows, int64_t columns, uint64_t hot,
                    int64_t shift = 0) {
    Array<double> rows = RandomFor<T>({count * columns + shift}, 2),
                  old = RandomFor<float>({num_rows, columns}, 3);
    Array<int64_t> index = Index(count, num_rows, hot);
    OnDevice<T> device_rows(RoundedTo<T>(rows), device());
    OnDevice<int64_t> device_index(index, device());
    const ArrayView rows_view = DenseView(rows.values.data() + shift, {count, columns});
    const ArrayView device_view = DenseView(device_rows.data() + shift, {count, columns});
    for (bool accumulate : {false, true}) {
      Array<double> wanted = old;
      ScatterAddRows(wanted, rows_view, index, accumulate, cpu());
      const Array<float> start =
          accumulate ? RoundedTo<float>(old) : Poisoned<float>({num_rows, columns});
      OnDevice<float> output(start, device());
      const Placed<float> again(start, shift, device());
      cuda::ScatterAddRows(output, device_view, device_index, accumulate, device());
      cuda::ScatterAddRows(again, device_view, device_index, accumulate, device());
      EXPECT_LT(RelativeError(output.Get(), wanted), kDeviceTolerance<float>)
          << count << " x " << columns << " to " << num_rows;
      ExpectSameBits(output.Get(), again.Get());
    }
  }
};

TEST_F(EmbeddingDeviceTest, GatherTakesRowsOfEveryWidthAndType) {
  for (int64_t count : {0, 1, 17, 300}) {
    for (int64_t columns : {1, 3, 4, 8, 65}) {
      CheckGather<float>(count, columns, 0);
      CheckGather<BFloat16>(count, columns, 0);
    }
  }
  CheckGather<float>(40, 64, 1);
  CheckGather<BFloat16>(40, 64, 1);
  CheckGather<uint8_t>(40, 7, 0);
  CheckGather<int64_t>(40, 6, 0);
  CheckGather<float>(5, 0, 0);
}

TEST_F(EmbeddingDeviceTest, ScatterMatchesTheReference) {
  for (int64_t count : {0, 1, 3, 17, 64, 65, 1500}) {
    for (int64_t columns : {1, 3, 8, 17, 64}) {
      CheckScatter<float>(count, 37, columns, 0);
      CheckScatter<BFloat16>(count, 37, columns, 0);
    }
  }
  CheckScatter<float>(500, 1, 8, 0);
  CheckScatter<float>(500, 3000, 12, 0);
  CheckScatter<float>(20, 5, 0, 0);
}

TEST_F(EmbeddingDeviceTest, ScatterOfMisalignedRowsAndOutput) {
  CheckScatter<float>(300, 37, 16, 4, 1);
  CheckScatter<BFloat16>(300, 37, 16, 4, 1);
}

TEST_F(EmbeddingDeviceTest, OneValueWithMostRowsIsSummedInPieces) {
  for (uint64_t hot : {2, 6, 8}) {
    CheckScatter<float>(3000, 37, 12, hot);
    CheckScatter<BFloat16>(3000, 300, 24, hot);
    CheckScatter<float>(1000, 10, 3, hot);
  }
  CheckScatter<float>(300, 10, 700, 7);  // several parts of columns
}

TEST_F(EmbeddingDeviceTest, SegmentsAroundOnePieceKeepTheirLastRow) {
  for (int64_t count : {31, 32, 33, 63, 64, 65, 1024, 1025}) CheckScatter<float>(count, 3, 4, 8);
}

// A row on a parameter server equals the same values inside a dense table because of this.
TEST_F(EmbeddingDeviceTest, ASegmentsSumDoesNotDependOnOthers) {
  const int64_t columns = 5, mine = 100;
  Array<float> alone;
  for (int64_t before : {0, 1, 20, 77}) {
    Array<float> rows = RandomArray<float>({before + mine, columns}, 9);
    const Array<float> same = RandomArray<float>({mine, columns}, 4);
    std::copy(same.values.begin(), same.values.begin() + mine * columns,
              rows.values.begin() + before * columns);
    Array<int64_t> index({before + mine}, 1);
    for (int64_t r = 0; r < before; ++r) index[r] = 0;
    OnDevice<float> output(Poisoned<float>({2, columns}), device()), device_rows(rows, device());
    OnDevice<int64_t> device_index(index, device());
    cuda::ScatterAddRows(output, device_rows, device_index, false, device());
    Array<float> row({columns});
    const Array<float> found = output.Get();
    for (int64_t c = 0; c < columns; ++c) row[c] = found[columns + c];
    if (before == 0) alone = row;
    ExpectSameBits(row, alone);
  }
}

TEST_F(EmbeddingDeviceTest, RowsAreLocatedInAPartOfTheTable) {
  for (const int64_t count : {0, 1, 700}) {
    Array<int64_t> index = Index(count, 40, 0);
    Array<int64_t> here({count});
    Array<float> factor({count});
    LocateRows(here, factor, index, /*first=*/7, /*count=*/11, cpu());
    const OnDevice<int64_t> rows(index, device()), found(Array<int64_t>({count}, -1), device());
    const OnDevice<float> factors(Poisoned<float>({count}), device());
    LocateRows(found, factors, rows, 7, 11, device());
    EXPECT_TRUE(SameBits(found.Get(), here));
    EXPECT_TRUE(SameBits(factors.Get(), factor));
    for (int64_t r = 0; r < count; ++r) {
      const bool is_here = index[r] >= 7 && index[r] < 18;
      EXPECT_EQ(here[r], is_here ? index[r] - 7 : 0);
      EXPECT_EQ(factor[r], is_here ? 1 : 0);
    }
  }
}

}  // namespace
}  // namespace tandem::kernels
