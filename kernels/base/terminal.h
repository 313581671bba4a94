// The width of the terminal that shows standard output.
// Thread rule: any thread.
#pragma once

#include <cstddef>

namespace tandem {

// Asks the terminal at every call, because users resize terminals. Returns 80 if standard output is
// no terminal.
size_t TerminalColumns();

}  // namespace tandem
