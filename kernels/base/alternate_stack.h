// A second stack for a thread's signal handlers. oneDNN 2.6's f32 kernels for processors without AVX-512 use the stack pointer as a
// pointer into the heap (oneDNN issue 4845). The kernel would write a handler's frame over weights below that address.
// Tandem's own handlers never run on a computing thread (trainer/cli/signals.h); this protects from a profiler's.
// Thread rule: each call is about the calling thread.
#pragma once

namespace tandem {

// From now until the thread ends, handlers installed with SA_ONSTACK run on a stack of their own. A thread that has such a stack
// (a sanitizer's) keeps that one. Costs one test of a thread-local variable after the first call.
void EnsureAlternateStack();

}  // namespace tandem
