// Settings of a process that talks over gRPC. The main function chooses them, because they hold for
// the whole process.
#pragma once

namespace tandem::rpc {

// Keeps memory that gRPC's messages free in the process, and turns off the deadlock detection of
// Abseil's mutexes. Without the kept memory, streams with several 1 MB messages in flight have a
// third of the throughput.
// Thread rule: once, before other threads run.
void PrepareProcess();

}  // namespace tandem::rpc
