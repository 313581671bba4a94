#include "trainer/autograd/parameter_slice.h"

#include <gtest/gtest.h>

#include "trainer/autograd/parameter.h"

namespace tandem {
namespace {

// The logical element of each of the local elements [begin, end).
std::vector<int64_t> LogicalElements(const ParameterSlice& slice, int64_t begin, int64_t end) {
  std::vector<int64_t> elements;
  slice.ForEachRun(begin, end, [&](int64_t local, int64_t logical, int64_t count) {
    EXPECT_EQ(local, begin + static_cast<int64_t>(elements.size()));
    for (int64_t i = 0; i < count; ++i) elements.push_back(logical + i);
  });
  return elements;
}

// The same, index by index.
std::vector<int64_t> Expected(const Shape& logical, int dim, const std::vector<IndexRange>& kept) {
  std::vector<int64_t> elements;
  for (int64_t i = 0; i < logical.num_elements(); ++i) {
    int64_t inner = 1;
    for (int d = dim + 1; d < logical.num_dims(); ++d) inner *= logical[d];
    const int64_t index = i / inner % logical[dim];
    for (const IndexRange& range : kept) {
      if (range.begin <= index && index < range.end) elements.push_back(i);
    }
  }
  return elements;
}

TEST(ParameterSliceTest, RunsAreTheKeptElementsInOrderFromAnyBeginToAnyEnd) {
  struct Case {
    Shape logical;
    int dim;
    std::vector<IndexRange> kept;
  };
  const Case cases[] = {{{12}, 0, {{3, 7}}},
                        {{4, 12}, 1, {{0, 2}, {4, 6}, {8, 10}}},
                        {{4, 12}, 1, {{2, 4}, {4, 5}, {11, 12}}},
                        {{6, 5}, 0, {{2, 4}}},
                        {{2, 6, 3}, 1, {{1, 2}, {4, 6}}}};
  for (const Case& c : cases) {
    const ParameterSlice slice(c.logical, c.dim, c.kept);
    const std::vector<int64_t> all = Expected(c.logical, c.dim, c.kept);
    const auto size = static_cast<int64_t>(all.size());
    EXPECT_EQ(slice.local().num_elements(), size);
    for (int64_t begin = 0; begin <= size; ++begin) {
      for (int64_t end = begin; end <= size; ++end) {
        EXPECT_EQ(LogicalElements(slice, begin, end),
                  std::vector<int64_t>(all.begin() + begin, all.begin() + end))
            << c.logical << " [" << begin << ", " << end << ")";
      }
    }
  }
}

TEST(ParameterSliceTest, InitialValuesAndHashesAreThoseOfTheLogicalElements) {
  const Shape logical{6, 8};
  ParameterSet whole(5, DType::F32);
  whole.Normal("w", logical, 1);
  whole.Uniform("u", logical, 1);
  absl::uint128 sum = 0;
  for (int rank = 0; rank < 2; ++rank) {
    ParameterSet part(5, DType::F32);
    const ParameterSlice slice(logical, 1,
                               {{2 * rank, 2 * rank + 2}, {4 + 2 * rank, 6 + 2 * rank}});
    part.Normal("w", slice, 1);
    part.Uniform("u", slice, 1);
    EXPECT_EQ(part.num_elements(), whole.num_elements());
    for (size_t p = 0; p < 2; ++p) {
      const Parameter& parameter = *part.all()[p];
      const Tensor& value = parameter.variable.value();
      const std::vector<int64_t> elements = LogicalElements(slice, 0, value.num_elements());
      for (size_t i = 0; i < elements.size(); ++i) {
        EXPECT_EQ(value.At(static_cast<int64_t>(i)),
                  whole.all()[p]->variable.value().At(elements[i]));
      }
      EXPECT_TRUE(parameter.decay);
      // Two ranges of elements, as two owners hold them.
      const Tensor flat = value.Reshape(Shape{value.num_elements()});
      sum += HashElements(parameter, 0, flat.Rows(0, 7), 0) +
             HashElements(parameter, 0, flat.Rows(7, value.num_elements()), 7);
    }
  }
  EXPECT_EQ(sum, HashTensor("w", 0, whole.all()[0]->variable.value()) +
                     HashTensor("u", 0, whole.all()[1]->variable.value()));
}

}  // namespace
}  // namespace tandem
