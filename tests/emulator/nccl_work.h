// The work that ranks have given to the stand-in for NCCL: how it enters the queues, and runs there
// once all ranks that it needs have given theirs.
// Thread rule: the library's mutex (nccl_communicator.h).
#pragma once

#include <nccl.h>

#include "tests/emulator/nccl_communicator.h"

namespace nccl_stand_in {

// The bytes of one element; 0: this type is not emulated.
size_t SizeOf(ncclDataType_t type);

void Enter(Launch& launch);
// Marks the submission as done on its queues.
void Complete(const Submission& submission);
// The body of a communicator's thread. Enqueues work that no caller polls for, and runs queued
// work. Takes the mutex itself.
void Serve(const std::shared_ptr<Communicator>& communicator);

}  // namespace nccl_stand_in
