#include "rpc/process.h"

#include <malloc.h>

#include "absl/synchronization/mutex.h"

namespace tandem::rpc {
namespace {

// gRPC takes and frees a few hundred KB for whatever a socket delivers. By default such blocks go back to the system at once, and
// come again page by page, until by chance a larger one has been freed: the limits that glibc then finds are set from the start.
void KeepFreedMemory() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 64 << 20);
}

// Debian's Abseil is built to look for deadlocks: a thread that takes a lock notes it among those that it and others hold. Unit
// tests keep that; elsewhere it would cost pulls and pushes up to 4 %.
void TakeLocksPlainly() { absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore); }

}  // namespace

void PrepareProcess() {
  KeepFreedMemory();
  TakeLocksPlainly();
}

}  // namespace tandem::rpc
