// Text inside HTML and SVG. Names come from folders and files that anybody may have written, so all
// text passes through here.
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tandem::report {

// Text that is safe in an element and in a quoted attribute. Escapes the five characters of markup.
// Bytes that are not UTF-8 and invisible symbols become visible escapes (kernels/base/utf8.h).
std::string Escaped(std::string_view text);

// Cuts the middle out of `text`, so that at most `most` symbols are left. "…" marks the cut.
// Invisible symbols become visible escapes before they are counted. The result is not escaped.
// REQUIRES: most >= 3.
std::string Fitted(std::string_view text, size_t most);

// The number of symbols of `text`.
// REQUIRES: `text` is UTF-8.
size_t CountSymbols(std::string_view text);

}  // namespace tandem::report
