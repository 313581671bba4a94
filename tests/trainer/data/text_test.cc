#include "trainer/data/text/text.h"

#include <gtest/gtest.h>
#include <string>
#include <string_view>
#include <vector>

#include "tests/trainer/data/temp_file.h"

namespace tandem::data {
namespace {

using namespace std::string_literals;

// Both parts as text, "train|valid".
std::string Parts(std::string_view content, double train_fraction = 0.5, int64_t max_length = 1) {
  const TempFile file(content);
  const auto text = ReadText(file.path(), train_fraction, max_length);
  if (!text.ok()) return text.status().ToString();
  const auto decode = [&](const std::vector<int32_t>& part) {
    return text->vocabulary.Decode(std::vector<int64_t>(part.begin(), part.end()));
  };
  return decode(text->train) + "|" + decode(text->valid);
}

// The error of reading `content`, with the file's path replaced by PATH.
std::string Error(std::string_view content, int64_t max_length = 1) {
  const TempFile file(content);
  const auto text = ReadText(file.path(), 0.5, max_length);
  if (text.ok()) return "no error";
  EXPECT_EQ(text.status().code(), absl::StatusCode::kDataLoss);
  const std::string message(text.status().message());
  EXPECT_EQ(message.rfind(file.path(), 0), 0u) << message;
  return "PATH" + message.substr(file.path().size());
}

TEST(TextTest, TheFirstPartTrainsAndTheVocabularyIsItsSortedSymbols) {
  const TempFile file("cabbacbab?");
  const auto text = ReadText(file.path(), 0.5, 2);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(text->vocabulary.Symbols(), "abc");
  EXPECT_EQ(text->train, (std::vector<int32_t>{2, 0, 1, 1, 0}));
  EXPECT_EQ(text->valid, (std::vector<int32_t>{2, 1, 0, 1}));
  EXPECT_EQ(text->num_unseen, 1);
}

TEST(TextTest, TheCutIsTheFloorOfTheFractionOfSymbols) {
  EXPECT_EQ(Parts("aaaaaaaaaa", 0.79), "aaaaaaa|aaa");
  EXPECT_EQ(Parts("\xC3\xA4\xC3\xA4\xC3\xA4\xC3\xA4\xC3\xA4", 0.4),
            "\xC3\xA4\xC3\xA4|\xC3\xA4\xC3\xA4\xC3\xA4");
}

TEST(TextTest, ForeignLineEndsAndByteOrderMarkMakeNoDifference) {
  const std::string plain = Parts("a\nb\n\na\nb\n\n");
  EXPECT_EQ(plain, "a\nb\n\n|a\nb\n\n");
  EXPECT_EQ(Parts("a\r\nb\r\n\r\na\r\nb\r\n\r\n"), plain);
  EXPECT_EQ(Parts("a\rb\r\ra\rb\r\r"), plain);
  EXPECT_EQ(Parts("\xEF\xBB\xBF"
                  "a\r\nb\r\ra\nb\n\r\n"),
            plain);
}

TEST(TextTest, AByteOrderMarkInsideTheTextIsASymbol) {
  EXPECT_EQ(Parts("\xEF\xBB\xBF"
                  "a\xEF\xBB\xBF"
                  "aa"),
            "a\xEF\xBB\xBF|aa");
}

TEST(TextTest, SymbolsOfOneToFourBytesAndNulAreSymbols) {
  const std::string all =
      "\0z\x7F\xC2\x80\xDF\xBF\xE0\xA0\x80"
      "\xED\x9F\xBF\xEE\x80\x80\xEF\xBF\xBF\xF0\x90\x80\x80\xF4\x8F\xBF\xBF"s;
  EXPECT_EQ(Parts(all + all), all + "|" + all);
  const TempFile file(all + all);
  EXPECT_EQ(ReadText(file.path(), 0.5, 1)->vocabulary.size(), 11);
}

TEST(TextTest, InvalidUtf8NamesLineAndByteOffset) {
  EXPECT_EQ(Error("ab\x80"),
            "PATH:1: invalid UTF-8 at byte offset 2: a continuation byte without a start (0x80)");
  EXPECT_EQ(Error("a\nb\r\nc\rd\xFFzz"),
            "PATH:4: invalid UTF-8 at byte offset 8: a byte that no sequence begins with (0xff "
            "0x7a 0x7a)");
  EXPECT_EQ(
      Error("\xEF\xBB\xBF\xC3(...."),
      "PATH:1: invalid UTF-8 at byte offset 3: a sequence is cut short (0xc3 0x28 0x2e 0x2e)");
  EXPECT_EQ(Error("ab\xE2\x82"),
            "PATH:1: invalid UTF-8 at byte offset 2: the text ends inside a sequence (0xe2 0x82)");
}

TEST(TextTest, OverlongFormsSurrogatesAndNumbersAboveUnicodeAreInvalid) {
  for (const std::string_view bytes :
       {"\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xF0\x8F\xBF\xBF"}) {
    EXPECT_NE(Error("ab" + std::string(bytes)).find("an overlong form"), std::string::npos);
  }
  for (const std::string_view bytes : {"\xED\xA0\x80", "\xED\xBF\xBF"}) {
    EXPECT_NE(Error("ab" + std::string(bytes)).find("a surrogate"), std::string::npos);
  }
  for (const std::string_view bytes : {"\xF4\x90\x80\x80", "\xF7\xBF\xBF\xBF"}) {
    EXPECT_NE(Error("ab" + std::string(bytes)).find("a number above U+10FFFF"), std::string::npos);
  }
}

TEST(TextTest, APartWithoutOneWindowIsTooShort) {
  EXPECT_EQ(Error("abcdefg", 3),
            "PATH: the text is too short: its training part has 3 known symbols, a window and its "
            "next symbol need 4; "
            "give a longer text, a smaller max_length or another data.train_fraction");
  EXPECT_EQ(Error("aaaaaaab", 3).substr(0, 68),
            "PATH: the text is too short: its validation part has 3 known symbols");
  EXPECT_EQ(Parts("aaaaaaaa", 0.5, 3), "aaaa|aaaa");
}

TEST(TextTest, EmptyFilesAreDataErrors) {
  EXPECT_EQ(Error(""), "PATH: the file is empty");
  EXPECT_EQ(Error("\xEF\xBB\xBF").substr(0, 70),
            "PATH: the text is too short: its training part has 0 known symbols, a ");
}

TEST(TextTest, MissingFilesAreNotFound) {
  EXPECT_EQ(ReadText("/no/such/file", 0.9, 1).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace tandem::data
