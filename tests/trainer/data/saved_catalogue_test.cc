#include "trainer/data/saved_catalogue.h"

#include <gtest/gtest.h>

namespace tandem::data {
namespace {

TEST(SavedCatalogueTest, LinesAreReadBack) {
  const std::vector<std::string> titles{"", "RED MUG", "", "\xC3\xA9\tx"};
  const std::string lines = CatalogueLines({0, 5, 0, 12}, titles);
  EXPECT_EQ(lines, "5\tRED MUG\n0\t\n12\t\xC3\xA9\tx\n");
  const auto catalogue = ParseCatalogue(lines, 3);
  ASSERT_TRUE(catalogue.ok()) << catalogue.status();
  EXPECT_EQ(catalogue->titles, titles);
  EXPECT_EQ(catalogue->training_counts, (std::vector<int64_t>{0, 5, 0, 12}));
  EXPECT_EQ(CatalogueLines({0, 7}, {}), "7\t\n") << "without titles";
}

TEST(SavedCatalogueTest, WhatIsNoCatalogueIsRefused) {
  for (const char* lines : {"5\n", "x\tA\n", "-1\tA\n", "5\tcaf\xe9\n", "99999999999999999999\tA\n",
                            "", "1\tA\n2\tB\n"})
    EXPECT_TRUE(absl::IsFailedPrecondition(ParseCatalogue(lines, 1).status())) << lines;
}

}  // namespace
}  // namespace tandem::data
