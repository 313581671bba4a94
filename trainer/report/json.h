// The two kinds of JSON value that need care. The rest of a run's JSON is written by hand.
// Thread rule: pure functions.
#pragma once

#include <string>
#include <string_view>

namespace tandem::report {

// Nine digits; null for a NaN or an infinity, which JSON cannot express.
std::string JsonNumber(double value);
// Quoted and escaped. A byte that is not UTF-8 becomes U+FFFD, because JSON is UTF-8.
std::string JsonString(std::string_view text);

}  // namespace tandem::report
