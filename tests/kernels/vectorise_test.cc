#include "kernels/cpu/vectorise.h"

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

}  // namespace
}  // namespace tandem::kernels
