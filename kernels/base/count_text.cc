#include "kernels/base/count_text.h"

#include "absl/strings/str_format.h"

namespace tandem {

std::string CountText(double value) {
  const std::string digits = absl::StrFormat("%.0f", value);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

}  // namespace tandem
