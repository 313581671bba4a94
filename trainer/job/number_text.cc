#include "trainer/job/number_text.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"

namespace tandem {

bool HasLeadingZero(std::string_view text) {
  if (!text.empty() && text[0] == '-') text.remove_prefix(1);
  return text.size() > 1 && text[0] == '0' && absl::ascii_isdigit(text[1]);
}

std::optional<uint64_t> ParseMagnitude(std::string_view digits, uint64_t high) {
  if (digits.empty() || !absl::ascii_isdigit(digits[0]) || HasLeadingZero(digits))
    return std::nullopt;
  const std::string text(digits);
  char* end = nullptr;
  errno = 0;
  const uint64_t magnitude = std::strtoull(text.c_str(), &end, 0);
  if (errno != 0 || *end != '\0' || magnitude > high) return std::nullopt;
  return magnitude;
}

std::optional<int64_t> ParseSigned(std::string_view text, int64_t high) {
  const bool negative = !text.empty() && text[0] == '-';
  const std::optional<uint64_t> magnitude = ParseMagnitude(
      text.substr(negative ? 1 : 0), static_cast<uint64_t>(high) + (negative ? 1 : 0));
  if (!magnitude.has_value()) return std::nullopt;
  return static_cast<int64_t>(negative ? 0 - *magnitude : *magnitude);
}

std::optional<double> ParseReal(const std::string& text, double high) {
  // SimpleAtod also takes blanks around a number, a plus before it, and hexadecimal numbers.
  const bool is_decimal = std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isdigit(c) || std::string_view(".+-eE").find(c) != std::string_view::npos;
  });
  double number = 0;
  if (!is_decimal || text[0] == '+' || HasLeadingZero(text) || !absl::SimpleAtod(text, &number) ||
      !(std::fabs(number) <= high))
    return std::nullopt;
  return number;
}

std::optional<bool> ParseBool(std::string_view text) {
  if (text == "true") return true;
  if (text == "false") return false;
  return std::nullopt;
}

std::string TextOf(double number) {
  std::array<char, 32> text;
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() ? std::string(text.data(), end) : "";
}

}  // namespace tandem
