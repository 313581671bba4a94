#include "kernels/base/count_text.h"

#include "absl/strings/str_format.h"

namespace tandem {

std::string CountText(double value) {
  std::string digits = absl::StrFormat("%.0f", value);
  for (int i = static_cast<int>(digits.size()) - 3; i > 0; i -= 3) digits.insert(static_cast<size_t>(i), ",");
  return digits;
}

}  // namespace tandem
