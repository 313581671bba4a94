// Formats help for a terminal.
// Thread rule: pure functions, except for the width of the terminal.
#pragma once

#include <cstddef>
#include <string>

namespace tandem::cli {

// Breaks lines at spaces so that no line is wider than `columns`, except for a single long word.
// The text after a flag stays in its column.
std::string WrapHelp(const std::string& text, size_t columns);

// The width of the terminal on standard output, at most 120; 80 if there is no terminal.
size_t HelpColumns();

}  // namespace tandem::cli
