// How help is set for a terminal. Thread rule: pure functions but for the terminal's width.
#pragma once

#include <cstddef>
#include <string>

namespace tandem::cli {

// Breaks lines at spaces so that none but a single long word is wider than `columns`. What follows a flag stays in its column.
std::string WrapHelp(const std::string& text, size_t columns);

// Of the terminal that standard output is, at most 120; 80 elsewhere.
size_t HelpColumns();

}  // namespace tandem::cli
