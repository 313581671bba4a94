// Controls and counters of the stand-in for NCCL. Tests find this struct by its name in the
// stand-in's shared library.
// Ranks are threads of one process; streams are EmulatedQueues. nccl_emulated.cc says how strict
// the stand-in is.
// Thread rule: any thread.
#pragma once

#include <atomic>

struct EmulatedNccl {
  std::atomic<int> live_communicators = 0;
  std::atomic<int> num_operations = 0;  // submitted, those in groups too
  std::atomic<int> num_groups = 0;      // submitted, empty ones not
  std::atomic<int> misuses =
      0;  // answered by ncclInvalidUsage or ncclInvalidArgument; ranks that came twice
  std::atomic<bool> tells_peers =
      false;  // ncclCommAbort gives the peers ncclRemoteError; else they never learn of it
  std::atomic<bool> abort_hangs =
      false;  // ncclCommAbort returns when this is false again, as if a peer's process were stopped
  std::atomic<bool> fails_init =
      false;  // communicators fail as soon as their ranks have met: "Duplicate GPU detected"
  std::atomic<int> async_error_rank =
      -1;  // communicators of this rank (the one given at init) report ncclSystemError, for ever
};
inline constexpr char kEmulatedNccl[] = "emulated_nccl";
