// What a process does before it talks: a choice of its main function, for it holds for all of the process.
#pragma once

namespace tandem::rpc {

// Memory that gRPC's messages have freed stays with the process, and Abseil's mutexes do not look for deadlocks. Without the first,
// streams with several messages of 1 MB on their way carry a third as much.
// Thread rule: once, before other threads run.
void PrepareProcess();

}  // namespace tandem::rpc
