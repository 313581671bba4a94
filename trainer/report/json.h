// The two kinds of JSON value that need care; the rest of a run's JSON is put together by hand. Thread rule: pure functions.
#pragma once

#include <string>
#include <string_view>

namespace tandem::report {

// Nine digits; null for a NaN or an infinity, which JSON has not.
std::string JsonNumber(double value);
// In quotes and escaped. A byte that is not UTF-8 becomes U+FFFD: JSON is UTF-8.
std::string JsonString(std::string_view text);

}  // namespace tandem::report
