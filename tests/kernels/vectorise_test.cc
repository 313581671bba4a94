#include "kernels/cpu/vector/vectorise.h"

#include <vector>

#include "kernels/cpu/vector/strips.h"
#include "tests/kernels/instruction_sets.h"

namespace tandem::kernels {
namespace {

TEST(VectoriseTest, LimitChoosesTheCopyAndEndsWithItsScope) {
  const auto chosen = [] {
    InstructionSet set;
    Vectorised([&](auto copy) { set = copy; });
    return set;
  };
  int copies = 0;
  ForEachInstructionSet([&](InstructionSet set) {
    EXPECT_EQ(chosen(), set);
    ++copies;
  });
  EXPECT_EQ(copies, static_cast<int>(WidestInstructionSet()) + 1);
  EXPECT_EQ(chosen(), WidestInstructionSet());
}

TEST(StripsTest, EveryElementComesOnceInOrder) {
  const std::vector<float> x(3 * kStrip);
  for (int64_t n : {int64_t{0}, int64_t{1}, kStrip - 1, kStrip, kStrip + 1, 3 * kStrip}) {
    int64_t next = 0;
    InStrips(
        n,
        [&](int64_t begin, int64_t end) {
          EXPECT_EQ(begin, next);
          EXPECT_GT(end, begin);
          next = end;
        },
        x.data());
    EXPECT_EQ(next, n);
  }
}

}  // namespace
}  // namespace tandem::kernels
