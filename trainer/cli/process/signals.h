// SIGTERM, SIGINT and SIGHUP as a value that the run polls, instead of a sudden end. No handler
// runs for these signals: all threads block them, and one thread takes them. A handler on a
// computing thread could damage weights (kernels/base/alternate_stack.h). State is process-wide,
// because signals are.
// Thread rule: queries from any thread; everything else from the main thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace tandem::cli {

// The time that a stopped job has to finish its step and write a checkpoint, before its processes
// are killed. Servers and the master, which signals often reach too, stay as long if trainers need
// them.
inline constexpr absl::Duration kStopGrace = absl::Seconds(60);

// Starts the thread that takes signals. Until CatchSignals, a stop ends the process at once.
// Ignores SIGHUP if it was ignored before (nohup).
// REQUIRES: no other thread runs yet, because threads inherit the blocked signals.
void TakeSignals();
// From now on a stop is only recorded. Output that nobody reads is a write error instead of
// SIGPIPE.
void CatchSignals();
// Restores, in a forked child, the signals that this process began with, for the program that the
// child executes. Async-signal-safe.
void GiveSignalsBack();

// The first recorded signal, or 0.
int ReceivedSignal();
inline bool SignalReceived() { return ReceivedSignal() != 0; }
// Cancelled, naming the signal, once one is recorded.
absl::Status SignalStatus();
// The Cancelled status of a run that stopped after `steps` steps, with a checkpoint written.
absl::Status StoppedStatus(int64_t steps);
// "SIGTERM"
std::string SignalName(int signal);

}  // namespace tandem::cli
