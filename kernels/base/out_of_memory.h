// The end of a process to which the system gives no memory: one line says how much was wanted, is in use and is allowed. Nothing can go on
// from there, and a full machine is no fault of this code. Thread rule: any thread.
#pragma once

#include <cstddef>

namespace tandem {

// The exit code of what may go well another time (trainer/cli/exit_code.h).
inline constexpr int kExitTemporary = 75;

// `wanted_bytes` is 0 where it is not known. Takes no memory itself.
[[noreturn]] void OutOfMemory(size_t wanted_bytes);

}  // namespace tandem
