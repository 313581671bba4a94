// SIGTERM, SIGINT and SIGHUP as a value that the run asks for, instead of a sudden end. No handler runs for them: every thread has
// signals blocked but one, which takes them. A handler on a computing thread could damage weights (kernels/base/alternate_stack.h).
// State is process-wide, because signals are. Thread rule: questions from any thread; the rest from the main thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace tandem::cli {

// How long a job that was told to stop may take, to finish its step and write a checkpoint, until its processes are killed.
// Servers and the master, whom signals often reach too, stay as long if trainers need them.
inline constexpr absl::Duration kStopGrace = absl::Seconds(60);

// Starts the thread that takes signals; a stop ends the process at once until CatchSignals. SIGHUP is none of ours if it was
// ignored before (nohup). REQUIRES: no other thread runs yet, because threads inherit what is blocked.
void TakeSignals();
// From now on a stop is only noted, and output nobody reads is an error of the write instead of SIGPIPE.
void CatchSignals();
// Gives a forked child the signals that this process began with, for the program that the child becomes. Async-signal-safe.
void GiveSignalsBack();

// The first signal noted, or 0.
int ReceivedSignal();
inline bool SignalReceived() { return ReceivedSignal() != 0; }
// Cancelled naming the signal once one was noted.
absl::Status SignalStatus();
// How a run that stopped after `steps` steps, with a checkpoint written, ends: Cancelled.
absl::Status StoppedStatus(int64_t steps);
// "SIGTERM"
std::string SignalName(int signal);

}  // namespace tandem::cli
