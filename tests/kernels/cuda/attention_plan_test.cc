#include "kernels/cuda/plan/attention_plan.h"

#include <gtest/gtest.h>
#include <set>
#include <vector>

namespace tandem::kernels::cuda {
namespace {

std::vector<int64_t> OffsetsOf(const std::vector<int64_t>& lengths) {
  std::vector<int64_t> offsets{0};
  for (int64_t length : lengths) offsets.push_back(offsets.back() + length);
  return offsets;
}

// Runs a warp's search lane by lane and returns its result. Counts the steps.
int64_t Search(const std::vector<int64_t>& offsets, int64_t slot, int rows, int* steps) {
  SlotSearch search{0, static_cast<int64_t>(offsets.size()) - 1};
  for (*steps = 0; !search.Done(); ++*steps) {
    int come = 0;
    for (int lane = 0; lane < 32; ++lane) {
      const int64_t b = search.Probe(lane);
      come += b < search.high && FirstSlot(offsets[static_cast<size_t>(b)], b, rows) <= slot;
    }
    search.Narrow(come);
  }
  return search.low;
}

const std::vector<std::vector<int64_t>> kLengths = {{1},
                                                    {0},
                                                    {64},
                                                    {65},
                                                    {0, 0, 0},
                                                    {0, 3, 0, 17, 1, 0, 64, 65, 130, 0},
                                                    {63, 64, 1, 128, 127},
                                                    std::vector<int64_t>(33, 1),
                                                    std::vector<int64_t>(1025, 7),
                                                    {5000, 1, 5000}};

TEST(AttentionPlanTest, EveryTokenHasOneBlockAndEverySlotAtMostOne) {
  for (const auto& lengths : kLengths) {
    const std::vector<int64_t> offsets = OffsetsOf(lengths);
    const auto num_sequences = static_cast<int64_t>(lengths.size());
    for (int rows : {32, 64, 128}) {
      std::vector<int> seen(static_cast<size_t>(offsets.back()), 0);
      for (int64_t slot = 0; slot < NumSlots(offsets.back(), num_sequences, rows); ++slot) {
        int steps = 0;
        const int64_t b = Search(offsets, slot, rows, &steps);
        ASSERT_LE(steps, 3);
        const int64_t begin = offsets[static_cast<size_t>(b)],
                      end = offsets[static_cast<size_t>(b) + 1];
        const int64_t block = slot - FirstSlot(begin, b, rows);
        ASSERT_GE(block, 0);
        for (int64_t t = begin + block * rows; t < end && t < begin + (block + 1) * rows; ++t)
          ++seen[static_cast<size_t>(t)];
      }
      EXPECT_EQ(seen, std::vector<int>(seen.size(), 1))
          << rows << " rows, " << num_sequences << " sequences";
    }
  }
}

TEST(AttentionPlanTest, SearchOfAThousandSequencesTakesTwoSteps) {
  const std::vector<int64_t> offsets = OffsetsOf(std::vector<int64_t>(1024, 50));
  for (int64_t b = 0; b < 1024; ++b) {
    int steps = 0;
    EXPECT_EQ(Search(offsets, FirstSlot(50 * b, b, 64), 64, &steps), b);
    EXPECT_EQ(steps, 2);
  }
}

TEST(AttentionPlanTest, DepthsArePaddedToTheNextThatIsBuilt) {
  for (int depth = 1; depth <= 128; ++depth) {
    int wanted = 128;
    for (int built : {96, 64, 32, 16}) wanted = depth <= built ? built : wanted;
    EXPECT_EQ(PaddedDepth(depth), wanted);
  }
}

TEST(AttentionPlanTest, ShortSequencesAndFewBlocksStayLow) {
  EXPECT_TRUE(TakesTallBlocks(64 << 10, 32, 8));
  EXPECT_FALSE(TakesTallBlocks(64 << 10, 512, 8));
  EXPECT_FALSE(TakesTallBlocks(1024, 1, 8));
}

template <int kDepth>
void ExpectOneToOneWithoutBankConflicts() {
  using Place = Swizzle<kDepth>;
  std::set<int> places;
  for (int row = 0; row < 64; ++row) {
    for (int chunk = 0; chunk < kDepth / 8; ++chunk) {
      EXPECT_EQ(Place::At(row, chunk) % 8, 0);
      EXPECT_EQ(Place::At(row, chunk) / kDepth, row);
      places.insert(Place::At(row, chunk));
      EXPECT_EQ(Place::Beyond(row % 16, chunk % 2, row / 16 * 16, chunk / 2 * 2),
                Place::At(row, chunk))
          << row << ", " << chunk;
    }
  }
  EXPECT_EQ(places.size(), static_cast<size_t>(64 * kDepth / 8));
  for (int row = 0; row < 64; row += 8) {
    for (int chunk = 0; chunk < kDepth / 8; ++chunk) {
      std::set<int> banks;
      for (int i = 0; i < 8; ++i) banks.insert(Place::At(row + i, chunk) / 8 % 8);
      EXPECT_EQ(banks.size(), 8u) << "depth " << kDepth << ", row " << row << ", chunk " << chunk;
    }
  }
}

TEST(AttentionPlanTest, EightRowsOfAChunkLieInDifferentBanks) {
  ExpectOneToOneWithoutBankConflicts<16>();
  ExpectOneToOneWithoutBankConflicts<32>();
  ExpectOneToOneWithoutBankConflicts<64>();
  ExpectOneToOneWithoutBankConflicts<96>();
  ExpectOneToOneWithoutBankConflicts<128>();
}

}  // namespace
}  // namespace tandem::kernels::cuda
