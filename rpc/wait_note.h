// Lines about whom a process waits for, so that a job that does not begin says why.
// Thread rule: one thread at a time.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace tandem::rpc {

using WaitNote = std::function<void(const std::string& text)>;
inline constexpr absl::Duration kWaitNotePeriod = absl::Seconds(30);

// Passes on one text of a period, none before the first period has gone by.
class PeriodicNote {
 public:
  explicit PeriodicNote(WaitNote note) : note_(std::move(note)) {}

  void Tell(const std::string& text) {
    if (absl::Now() < next_) return;
    if (note_) note_(text);
    next_ += kWaitNotePeriod;
  }

 private:
  const WaitNote note_;
  absl::Time next_ = absl::Now() + kWaitNotePeriod;
};

}  // namespace tandem::rpc
