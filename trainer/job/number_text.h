// Numbers as users write them, in jobs and their options. Whole numbers are decimal or 0x... A
// leading zero is refused, because readers disagree on 8 or 10.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tandem {

// True for a number with a leading zero, such as 010.
bool HasLeadingZero(std::string_view text);

// Each function returns nothing unless the whole text is such a value.
std::optional<uint64_t> ParseMagnitude(std::string_view digits, uint64_t high);
std::optional<int64_t> ParseSigned(std::string_view text, int64_t high);
// A finite number between -high and high.
std::optional<double> ParseReal(const std::string& text, double high);
std::optional<bool> ParseBool(std::string_view text);

// The shortest text that reads back as the same number.
std::string TextOf(double number);

}  // namespace tandem
