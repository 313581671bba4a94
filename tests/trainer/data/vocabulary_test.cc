#include "trainer/data/text/vocabulary.h"

#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace tandem::data {
namespace {

using Numbers = std::vector<int64_t>;

TEST(VocabularyTest, SymbolsRoundTripInTheirOrder) {
  const std::string symbols("\n\0z\xC3\xA4\xF0\x9F\x98\x80", 9);
  const auto vocabulary = Vocabulary::FromSymbols(symbols);
  ASSERT_TRUE(vocabulary.ok()) << vocabulary.status();
  EXPECT_EQ(vocabulary->size(), 5);
  EXPECT_EQ(vocabulary->Symbols(), symbols);
  EXPECT_EQ(vocabulary->Find(U'\u00E4'), 3);
  EXPECT_EQ(vocabulary->Find(U'q'), std::nullopt);
}

TEST(VocabularyTest, ALeadingByteOrderMarkOfTheSymbolsIsASymbol) {
  const auto vocabulary = Vocabulary::FromSymbols(
      "\xEF\xBB\xBF"
      "\xF0\x9F\x98\x80");
  ASSERT_TRUE(vocabulary.ok());
  EXPECT_EQ(vocabulary->size(), 2);
}

TEST(VocabularyTest, DamagedSymbolsAreRefused) {
  for (const char* symbols : {"", "ab\x80", "aba"}) {
    EXPECT_EQ(Vocabulary::FromSymbols(symbols).status().code(), absl::StatusCode::kDataLoss)
        << symbols;
  }
}

TEST(VocabularyTest, EncodeLeavesOutAndCountsWhatItDoesNotKnow) {
  const Vocabulary vocabulary(U"\nab\u00E4");
  const auto encoded = vocabulary.Encode("b?\xC3\xA4\r\na!\r");
  ASSERT_TRUE(encoded.ok()) << encoded.status();
  EXPECT_EQ(encoded->numbers, (Numbers{2, 3, 0, 1, 0}));
  EXPECT_EQ(encoded->num_unseen, 2);
  EXPECT_EQ(vocabulary.Decode(encoded->numbers), "b\xC3\xA4\na\n");
  EXPECT_TRUE(vocabulary.Encode("")->numbers.empty());
}

TEST(VocabularyTest, APromptThatIsNotUtf8IsRefused) {
  const auto encoded = Vocabulary(U"ab").Encode("ab\xC3");
  EXPECT_EQ(encoded.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(encoded.status().message().find("byte offset 2"), absl::string_view::npos)
      << encoded.status();
}

}  // namespace
}  // namespace tandem::data
