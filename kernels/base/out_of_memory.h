// Ends the process when the system gives no more memory. One line says how much memory was wanted,
// is in use and is allowed. The code cannot go on without the memory, and a full machine is no bug.
// Thread rule: any thread.
#pragma once

#include <cstddef>

namespace tandem {

// The exit code of a failure that may not happen the next time (trainer/cli/process/exit_code.h).
inline constexpr int kExitTemporary = 75;

// `wanted_bytes` is 0 if unknown. Allocates no memory.
[[noreturn]] void OutOfMemory(size_t wanted_bytes);

}  // namespace tandem
