// Formats counts for people to read.
// Thread rule: a pure function.
#pragma once

#include <string>

namespace tandem {

// 12345.6 -> "12,346".
std::string CountText(double value);

}  // namespace tandem
