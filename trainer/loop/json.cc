#include "trainer/loop/json.h"

#include <cmath>

#include "absl/strings/str_format.h"

namespace tandem::loop {

std::string JsonNumber(double value) { return std::isfinite(value) ? absl::StrFormat("%.9g", value) : "null"; }

std::string JsonString(std::string_view text) {
  std::string out = "\"";
  for (unsigned char c : text) {
    if (c == '"' || c == '\\') out += {'\\', static_cast<char>(c)};
    else if (c < 0x20) out += absl::StrFormat("\\u%04x", c);
    else out += static_cast<char>(c);
  }
  return out + "\"";
}

}  // namespace tandem::loop
