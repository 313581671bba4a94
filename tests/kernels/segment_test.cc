#include "kernels/segment.h"

#include "tests/kernels/bf16_arrays.h"
#include "tests/kernels/instruction_sets.h"
#include "tests/kernels/random_arrays.h"
#include "tests/kernels/segment_offsets.h"

namespace tandem::kernels {
namespace {

const int64_t kColumns[] = {0, 1, 3, 17, 64, 65, 200};

TEST(SegmentMeanTest, IsTheMeanOfEachSegmentsRowsOnAnyNumberOfThreads) {
  TestStream one, three(3);
  for (const std::vector<int64_t>& lengths : kSegmentLengths) {
    for (const int64_t columns : kColumns) {
      Array<int64_t> offsets = OffsetsOf(lengths);
      const int64_t segments = static_cast<int64_t>(lengths.size());
      const int64_t rows = offsets[segments];
      SCOPED_TRACE(testing::Message() << rows << " rows of " << columns);
      Array<float> x = RandomArray<float>({rows, columns}, 1), mean({segments, columns}, 7.0f),
                   again = mean;
      Array<double> x64 = Converted<double>(x), mean64({segments, columns}, 7.0), wanted = mean64;
      for (int64_t s = 0; s < segments; ++s) {
        for (int64_t c = 0; c < columns; ++c) {
          double sum = 0;
          for (int64_t r = offsets[s]; r < offsets[s + 1]; ++r) sum += x[r * columns + c];
          wanted[s * columns + c] = lengths[s] == 0 ? 0 : sum / static_cast<double>(lengths[s]);
        }
      }
      SegmentMean(mean64, x64, offsets, one);
      SegmentMean(mean, x, offsets, one);
      SegmentMean(again, x, offsets, three);
      ExpectNear(mean64, wanted, 1e-15);
      ExpectNear(mean, wanted, 1e-6);
      ExpectSameBits(again, mean);
      EXPECT_EQ(mean.values.back(), 7.0f) << "wrote behind the end";
    }
  }
}

TEST(SegmentMeanTest, GradientMatchesDifferencesAndF64) {
  TestStream one, three(3);
  for (const std::vector<int64_t>& lengths : kSegmentLengths) {
    Array<int64_t> offsets = OffsetsOf(lengths);
    const int64_t segments = static_cast<int64_t>(lengths.size()), rows = offsets[segments];
    if (rows > 30) continue;
    for (const int64_t columns : {1, 3, 17}) {
      Array<double> x = RandomArray<double>({rows, columns}, 3),
                    weight = RandomArray<double>({segments, columns}, 4), grad(x.shape);
      SegmentMeanBackward(grad, weight, offsets, one);
      ExpectNear(
          grad,
          NumericGradient(x, weight, [&](Array<double>& y) { SegmentMean(y, x, offsets, one); }),
          1e-9);
      Array<float> weight32 = Converted<float>(weight), found(x.shape), again(x.shape);
      SegmentMeanBackward(found, weight32, offsets, one);
      SegmentMeanBackward(again, weight32, offsets, three);
      ExpectNear(found, grad, 1e-6);
      ExpectSameBits(again, found);
    }
  }
}

TEST(SegmentMeanTest, Bf16IsTheF32ResultRoundedOnceInEveryInstructionSet) {
  Array<int64_t> offsets = OffsetsOf({3, 0, 40, 1});
  for (const int64_t columns : {1, 17, 64, 65}) {
    Array<BFloat16> x = Rounded(RandomArray<float>({44, columns}, 1)),
                    grad = Rounded(RandomArray<float>({4, columns}, 2));
    Array<float> x32 = Converted<float>(Exact(x)), grad32 = Converted<float>(Exact(grad)),
                 mean32({4, columns}), grad_x32({44, columns});
    TestStream stream;
    SegmentMean(mean32, x32, offsets, stream);
    SegmentMeanBackward(grad_x32, grad32, offsets, stream);
    ForEachInstructionSet([&](InstructionSet) {
      Array<BFloat16> mean({4, columns}), grad_x({44, columns});
      SegmentMean(mean, x, offsets, stream);
      SegmentMeanBackward(grad_x, grad, offsets, stream);
      ExpectSameBits(mean, Rounded(mean32));
      ExpectSameBits(grad_x, Rounded(grad_x32));
    });
  }
}

TEST(SegmentMeanTest, OffsetsThatDoNotCutAllRowsDie) {
  TestStream stream;
  Array<float> x({4, 2}), mean({2, 2});
  Array<int64_t> offsets({3});
  offsets.values = {0, 3, 5, 0};
  EXPECT_DEATH(SegmentMean(mean, x, offsets, stream), "offsets 0 to 5 of 4 rows");
  offsets.values = {1, 3, 4, 0};
  EXPECT_DEATH(SegmentMeanBackward(x, mean, offsets, stream), "offsets 1 to 4 of 4 rows");
  offsets.values = {0, 5, 4, 0};
  EXPECT_DEATH(SegmentMean(mean, x, offsets, stream), "segment 1");
}

}  // namespace
}  // namespace tandem::kernels
