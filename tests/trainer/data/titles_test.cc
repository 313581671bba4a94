#include "trainer/data/titles.h"

#include <gtest/gtest.h>

#include "tests/trainer/data/temp_file.h"

namespace tandem::data {
namespace {

using Words = std::vector<std::string>;

Interactions Log() {
  Interactions log;
  log.users = {7};
  log.items.Append({1, 3, 3});
  log.num_items = 4;
  return log;
}

absl::Status ErrorOf(const std::string& content) {
  const TempFile file(content);
  return ReadTitles(file.path(), Log(), nullptr).status();
}

void ExpectError(const std::string& content, const std::string& words) {
  const absl::Status status = ErrorOf(content);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_NE(status.ToString().find(words), std::string::npos) << status;
}

TEST(TitlesTest, TheFirstColumnIsTheItemAndTheLastItsTitle) {
  const TempFile file(
      "\xEF\xBB\xBF"
      "3\tA1\tRED \xC3\x89t\xC3\xA9 MUG\r\n\n1\tSMALL CUP\n4\tX9\t");
  const auto titles = ReadTitles(file.path(), Log(), nullptr);
  ASSERT_TRUE(titles.ok()) << titles.status();
  EXPECT_EQ(titles->of_item, (Words{"", "SMALL CUP", "", "RED \xC3\x89t\xC3\xA9 MUG", ""}));
  EXPECT_EQ(titles->num_missing, 0) << "item 2 does not occur, item 4 has a line";
}

TEST(TitlesTest, AnItemThatOccursWithoutALineIsCounted) {
  const TempFile file("1\tSMALL CUP\n");
  const auto titles = ReadTitles(file.path(), Log(), nullptr);
  ASSERT_TRUE(titles.ok()) << titles.status();
  EXPECT_EQ(titles->num_missing, 1);
  EXPECT_EQ(titles->of_item[3], "");
}

TEST(TitlesTest, WhatIsWrongIsNamedWithItsLine) {
  ExpectError("1\tA\n3\tB\n1\tC\n", ":3: item 1 already has line 1");
  ExpectError("1\tA\n5\tB\n", ":2: item id 5 is above the catalogue's largest id 4");
  ExpectError("1\tA\n0\tB\n", ":2: item id 0");
  ExpectError("1\tA\n3\tcaf\xe9\n", ":2: the title at column 3 is not UTF-8: caf\\xe9");
  ExpectError("1 A\n", ":1: expected `item<TAB>title`");
  ExpectError("one\tA\n", ":1: expected `item<TAB>title`, found");
  EXPECT_TRUE(absl::IsNotFound(ReadTitles("/no/such/file", Log(), nullptr).status()));
}

TEST(TitlesTest, LinesOfMappedIdsThatTheLogLacksAreCountedAndLeftOut) {
  MappedIds ids;
  for (const char* id : {"mug", "cup", "pan", "pot"}) ids.items.Add(id);
  const TempFile file("cup\tA CUP\nkettle\tA KETTLE\npan\tA PAN\nmug\t\n");
  const auto titles = ReadTitles(file.path(), Log(), &ids);
  ASSERT_TRUE(titles.ok()) << titles.status();
  EXPECT_EQ(titles->of_item, (Words{"", "", "A CUP", "A PAN", ""}));
  EXPECT_EQ(titles->num_unknown, 1);
}

TEST(WordsOfTest, WordsAreRunsOfLettersAndDigitsCaseFolded) {
  EXPECT_EQ(WordsOf("KNIF & S, 3-tier(PINK)"), (Words{"knif", "s", "3", "tier", "pink"}));
  EXPECT_EQ(WordsOf("CAF\xC3\x89 \xCE\xA9\xCE\xA3 \xD0\x96"),
            (Words{"caf\xC3\xA9", "\xCF\x89\xCF\x83", "\xD0\xB6"}));
  EXPECT_EQ(WordsOf(" \xE2\x80\x94 !"), Words());
  EXPECT_EQ(WordsOf(""), Words());
}

}  // namespace
}  // namespace tandem::data
