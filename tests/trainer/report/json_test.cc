#include "trainer/report/json.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <nlohmann/json.hpp>

namespace tandem::report {
namespace {

TEST(JsonTest, StringsAreValidWhateverBytesTheyHold) {
  EXPECT_EQ(JsonText("a\"b\\c\n\x01"), "\"a\\\"b\\\\c\\n\\u0001\"");
  EXPECT_EQ(JsonText("caf\xC3\xA9"), "\"caf\xC3\xA9\"");
  EXPECT_EQ(JsonText("caf\xE9!"), "\"caf\xEF\xBF\xBD!\"");
}

TEST(JsonTest, MembersComeInTheOrderOfTheirInsertion) {
  nlohmann::ordered_json json{
      {"z", 1}, {"a", {1, 2.5, nullptr}}, {"empty", nlohmann::ordered_json::object()}};
  json["last"] = true;
  EXPECT_EQ(JsonText(json), R"({"z":1,"a":[1,2.5,null],"empty":{},"last":true})");
}

TEST(JsonTest, FiguresHaveNineDigitsAtMost) {
  EXPECT_EQ(JsonText(NineDigits(1.0 / 3)), "0.333333333");
  EXPECT_EQ(JsonText(NineDigits(0.0561356397)), "0.0561356397") << "nlohmann writes 17 digits";
  EXPECT_EQ(JsonText(NineDigits(60)), "60");
  EXPECT_EQ(JsonText(NineDigits(1e-5)), "1e-05");
  EXPECT_EQ(JsonText(NineDigits(-0.0)), "-0");
  EXPECT_EQ(JsonText(NineDigits(2e300)), "2e+300");
  EXPECT_EQ(JsonText(Milliseconds(1795857541.1234)), "1795857541.123");
  EXPECT_EQ(JsonText(std::numeric_limits<uint64_t>::max()), "18446744073709551615");
}

TEST(JsonTest, WhatIsNoNumberIsNull) {
  EXPECT_EQ(JsonText(NineDigits(std::nan(""))), "null");
  EXPECT_EQ(JsonText(NineDigits(-std::numeric_limits<double>::infinity())), "null");
  EXPECT_EQ(JsonText(Milliseconds(std::nan(""))), "null");
}

}  // namespace
}  // namespace tandem::report
