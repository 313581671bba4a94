#include "trainer/report/json.h"

#include <cmath>

#include "absl/strings/str_format.h"
#include "kernels/base/utf8.h"

namespace tandem::report {

std::string JsonNumber(double value) {
  return std::isfinite(value) ? absl::StrFormat("%.9g", value) : "null";
}

std::string JsonString(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const Utf8Symbol next = DecodeUtf8(text);
    const std::string_view bytes = text.substr(0, next.fault != nullptr ? 1 : next.num_bytes);
    if (next.fault != nullptr)
      out += "\\ufffd";
    else if (next.symbol == '"' || next.symbol == '\\')
      out += {'\\', bytes[0]};
    else if (next.symbol < 0x20)
      out += absl::StrFormat("\\u%04x", static_cast<uint32_t>(next.symbol));
    else
      out += bytes;
    text.remove_prefix(bytes.size());
  }
  return out + "\"";
}

}  // namespace tandem::report
