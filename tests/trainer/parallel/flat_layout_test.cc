#include "trainer/parallel/flat_layout.h"

#include <gtest/gtest.h>

#include "trainer/parallel/zero/zero.h"

namespace tandem::parallel {
namespace {

TEST(FlatLayoutTest, MembersFollowTheReverseOrderWithoutOverlap) {
  ParameterSet set(1, DType::F32);
  for (int i = 0; i < 6; ++i) set.Constant(std::string(1, 'a' + i), Shape{100 + i}, 1);
  const FlatLayout layout =
      LayOut(set.pointers(), {.bucket_bytes = 900, .first_bucket_bytes = 400, .unit_bytes = 256});
  EXPECT_GT(layout.size(), 2u);
  int next = 5;
  for (const FlatBucket& bucket : layout) {
    EXPECT_EQ(bucket.num_bytes % 256, 0u);
    size_t end = 0;
    for (const FlatMember& member : bucket.members) {
      EXPECT_EQ(member.parameter->name, std::string(1, 'a' + next--));
      EXPECT_GE(member.offset, end);
      EXPECT_EQ(member.offset % 64, 0u);
      end = member.offset + static_cast<size_t>(member.parameter->num_elements()) * 4;
    }
    EXPECT_LE(end, bucket.num_bytes);
  }
  EXPECT_EQ(next, -1);
}

TEST(FlatLayoutTest, PartsHoldEachElementOnceAndMayBeginInsideAParameter) {
  for (const DType dtype : {DType::F32, DType::F64}) {
    ParameterSet set(1, dtype);
    set.Constant("a", Shape{1}, 1);
    set.Constant("b", Shape{1000}, 1);
    set.Constant("c", Shape{33}, 1);
    set.Constant("d", Shape{7, 11}, 1);
    for (const int parts : {1, 2, 3, 4, 7}) {
      const FlatLayout layout = ZeroLayout(set.pointers(), parts, /*stage=*/1);
      std::vector<std::vector<int>> owners;
      for (const auto& parameter : set.all())
        owners.emplace_back(static_cast<size_t>(parameter->num_elements()), 0);
      bool inside = false;
      for (int part = 0; part < parts; ++part) {
        for (const optim::ElementRange& range : RangesOfPart(layout, set.pointers(), part, parts)) {
          inside |= range.begin > 0;
          for (size_t p = 0; p < owners.size(); ++p) {
            if (set.all()[p].get() != range.parameter) continue;
            for (int64_t i = 0; i < range.count; ++i)
              ++owners[p][static_cast<size_t>(range.begin + i)];
          }
        }
      }
      EXPECT_EQ(inside, parts > 1);
      for (const std::vector<int>& counts : owners) {
        for (const int count : counts) EXPECT_EQ(count, 1) << parts << " parts";
      }
    }
  }
}

}  // namespace
}  // namespace tandem::parallel
