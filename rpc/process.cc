#include "rpc/process.h"

#include <malloc.h>

#include "absl/synchronization/mutex.h"

namespace tandem::rpc {
namespace {

// gRPC allocates and frees a few hundred KB for whatever a socket delivers. By default glibc
// returns such blocks to the system at once, and later faults them in again page by page. Only when
// a larger block happens to be freed does glibc raise its limits. This sets the limits from the
// start.
void KeepFreedMemory() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 64 << 20);
}

// Debian's Abseil detects deadlocks: a thread that takes a lock records it among all held locks.
// Unit tests keep the detection; elsewhere it would cost pulls and pushes up to 4 %.
void TakeLocksPlainly() { absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore); }

}  // namespace

void PrepareProcess() {
  KeepFreedMemory();
  TakeLocksPlainly();
}

}  // namespace tandem::rpc
