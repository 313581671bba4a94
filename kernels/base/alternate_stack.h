// A second stack for a thread's signal handlers. On processors without AVX-512, oneDNN 2.6's f32
// kernels use the stack pointer as a heap pointer (oneDNN issue 4845). The kernel would write a
// handler's frame over weights below that address. Tandem's own handlers never run on a computing
// thread (trainer/cli/process/signals.h); the second stack protects from a profiler's handlers.
// Thread rule: each call is about the calling thread.
#pragma once

namespace tandem {

// Runs handlers installed with SA_ONSTACK on a stack of their own, until the thread ends. A thread
// that already has such a stack (a sanitizer's) keeps it. After the first call, costs one test of a
// thread-local variable.
void EnsureAlternateStack();

}  // namespace tandem
