#include "trainer/cli/help_text.h"

#include <algorithm>
#include <sstream>

#include "kernels/base/terminal.h"

namespace tandem::cli {

namespace {

constexpr size_t kDescriptionColumn = 30;  // where CLI11's formatter begins descriptions

// The column where the rest of a too wide line continues.
size_t IndentOf(const std::string& line) {
  return line.rfind("  ", 0) == 0 ? kDescriptionColumn : 0;
}

void Wrap(std::string line, size_t columns, std::ostringstream& out) {
  const size_t indent = IndentOf(line);
  while (line.size() > columns) {
    const size_t first = line.find_first_not_of(' ', indent);
    size_t cut = line.rfind(' ', columns);
    if (cut == std::string::npos || first == std::string::npos || cut <= first)
      cut = line.find(' ', std::max(columns, first));
    if (cut == std::string::npos) break;
    out << line.substr(0, cut) << "\n";
    line = std::string(indent, ' ') + line.substr(cut + 1);
  }
  out << line << "\n";
}

}  // namespace

std::string WrapHelp(const std::string& text, size_t columns) {
  std::ostringstream out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) Wrap(line, columns, out);
  return out.str();
}

size_t HelpColumns() { return std::clamp<size_t>(TerminalColumns(), 2 * kDescriptionColumn, 120); }

}  // namespace tandem::cli
