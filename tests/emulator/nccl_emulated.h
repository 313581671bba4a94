// What a test reads from and tells the stand-in for NCCL, a shared library that is found by this struct's name. Its ranks are
// threads of one process, its streams are EmulatedQueues; what it forgives and what it does not is said in nccl_emulated.cc.
// Thread rule: any thread.
#pragma once

#include <atomic>

struct EmulatedNccl {
  std::atomic<int> live_communicators = 0;
  std::atomic<int> num_operations = 0;      // submitted, those in groups too
  std::atomic<int> num_groups = 0;          // submitted, empty ones not
  std::atomic<int> misuses = 0;             // answered by ncclInvalidUsage or ncclInvalidArgument; ranks that came twice
  std::atomic<bool> tells_peers = false;    // ncclCommAbort gives the peers ncclRemoteError; else they never learn of it
  std::atomic<bool> abort_hangs = false;    // ncclCommAbort returns when this is false again, as if a peer's process were stopped
  std::atomic<bool> fails_init = false;     // communicators fail as soon as their ranks have met: "Duplicate GPU detected"
  std::atomic<int> async_error_rank = -1;   // communicators of this rank (the one given at init) report ncclSystemError, for ever
};
inline constexpr char kEmulatedNccl[] = "emulated_nccl";
