// SIGTERM and SIGINT as a value that the run asks for, instead of a sudden end. One process-wide flag, because signals are
// process-wide. Thread rule: Received from any thread.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace tandem::cli {

// How long a job that was told to stop may take, to finish its step and write a checkpoint, until its processes are killed.
// Servers and the master, whom signals often reach too, stay as long if trainers need them.
inline constexpr absl::Duration kStopGrace = absl::Seconds(60);

// From now on SIGTERM and SIGINT are only noted.
void CatchSignals();
// The first signal noted, or 0.
int ReceivedSignal();
inline bool SignalReceived() { return ReceivedSignal() != 0; }
// Cancelled naming the signal once one was noted.
absl::Status SignalStatus();
// How a run that stopped after `steps` steps, with a checkpoint written, ends: Cancelled.
absl::Status StoppedStatus(int64_t steps);
// 128 + `signal` if there is one, else `code`.
int WithSignal(int signal, int code);

}  // namespace tandem::cli
