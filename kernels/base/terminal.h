// The width of the terminal that standard output goes to. Thread rule: any thread.
#pragma once

#include <cstddef>

namespace tandem {

// Asks anew at every call, because terminals are resized. Returns 80 where standard output is no terminal.
size_t TerminalColumns();

}  // namespace tandem
