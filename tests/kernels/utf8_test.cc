#include "kernels/base/utf8.h"

#include <gtest/gtest.h>
#include <string>

namespace tandem {
namespace {

using std::string_literals::operator""s;

TEST(PrintableTest, TextThatAReaderSeesStays) {
  for (const char* text : {"", "a log.txt", "caf\xC3\xA9", "\xE6\x97\xA5\xE6\x9C\xAC",
                           "\xF0\x9F\x98\x80", "C:\\new", "\"quoted\""}) {
    EXPECT_EQ(Printable(text), text);
  }
}

TEST(PrintableTest, ControlCharactersAreEscaped) {
  EXPECT_EQ(Printable("a\tb\r\n\x1b[2J\x7f\0!"s), "a\\tb\\r\\n\\x1b[2J\\x7f\\x00!");
  EXPECT_EQ(Printable("\xC2\x9B"
                      "2J"),
            "\\u009b2J")
      << "a terminal obeys it as it obeys ESC [";
}

TEST(PrintableTest, BytesThatAreNoUtf8AreEscapedOneByOne) {
  EXPECT_EQ(Printable("caf\xE9"), "caf\\xe9");
  EXPECT_EQ(Printable("\xE2\x82 \xC0\xAF \xED\xA0\x80"), "\\xe2\\x82 \\xc0\\xaf \\xed\\xa0\\x80");
}

TEST(PrintableTest, WhatLooksLikeSomethingElseIsEscaped) {
  EXPECT_EQ(Printable("1\xC2\xA0"
                      "2"),
            "1\\u00a02")
      << "no-break space";
  EXPECT_EQ(Printable("\xEF\xBB\xBFseed"), "\\ufeffseed") << "byte-order mark";
  EXPECT_EQ(Printable("a\xE2\x80\x8B\xE2\x80\xAE"
                      "b\xE3\x80\x80"),
            "a\\u200b\\u202eb\\u3000");
  EXPECT_EQ(Printable("\xF3\xA0\x81\x81"), "\\U000e0041") << "a tag";
}

TEST(PrintableTest, LinesOfAMessageStay) {
  EXPECT_EQ(PrintableLines("one\ntwo\x07\n"), "one\ntwo\\x07\n");
}

TEST(Utf8Test, IsStrict) {
  EXPECT_TRUE(IsUtf8(""));
  EXPECT_TRUE(IsUtf8("\xF4\x8F\xBF\xBF"));
  EXPECT_FALSE(IsUtf8("\xF4\x90\x80\x80"));
  EXPECT_FALSE(IsUtf8("ok\xE9"));
  EXPECT_FALSE(IsUtf8("\xC3"));
}

}  // namespace
}  // namespace tandem
