// Text of the JSON that a run and the benches write. nlohmann::json holds the values and escapes
// the strings. Numbers are printed here, because nlohmann prints 17 digits for some figures of
// nine. Files that make values include <nlohmann/json.hpp>; headers do not.
// Thread rule: pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace tandem::report {

// One line, members in the order of their insertion. A NaN or an infinity is null, because JSON
// cannot express them. A byte that is not UTF-8 becomes U+FFFD.
std::string JsonText(const nlohmann::ordered_json& value);

// Round to what the text shall hold: nine digits, or three places after the point.
double NineDigits(double value);
double Milliseconds(double seconds);

}  // namespace tandem::report
