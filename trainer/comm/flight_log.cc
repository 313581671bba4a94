#include "trainer/comm/flight_log.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/clock.h"

namespace tandem::comm {

uint64_t FlightLog::Launch(const Description& description) {
  absl::MutexLock lock(&mutex_);
  const uint64_t number = launched_++;
  entries_[number % kCapacity] = {number, description, State::QUEUED, MonotonicSeconds(), 0, 0};
  return number;
}

void FlightLog::Start(uint64_t number) {
  absl::MutexLock lock(&mutex_);
  Entry& entry = entries_[number % kCapacity];
  if (entry.number != number) return;
  entry.state = State::RUNNING;
  entry.started = MonotonicSeconds();
}

void FlightLog::Finish(uint64_t number, bool ok) {
  absl::MutexLock lock(&mutex_);
  Entry& entry = entries_[number % kCapacity];
  if (entry.number != number) return;
  entry.state = ok ? State::DONE : State::FAILED;
  entry.finished = MonotonicSeconds();
}

std::string FlightLog::Last(uint64_t count) const {
  absl::MutexLock lock(&mutex_);
  const uint64_t n = std::min({count, launched_, kCapacity});
  const double now = MonotonicSeconds();
  std::string text;
  for (uint64_t number = launched_ - n; number < launched_; ++number) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", ToString(entries_[number % kCapacity], now));
  }
  return text;
}

std::string FlightLog::ToString(const Entry& entry, double now) {
  std::string state;
  switch (entry.state) {
    case State::QUEUED:
      state = absl::StrFormat("queued for %.3f s", now - entry.launched);
      break;
    case State::RUNNING:
      state = absl::StrFormat("running for %.3f s", now - entry.started);
      break;
    case State::DONE:
      state = absl::StrFormat("done in %.6f s", entry.finished - entry.started);
      break;
    case State::FAILED:
      state = absl::StrFormat("failed after %.3f s", entry.finished - entry.launched);
      break;
  }
  return absl::StrCat(entry.description.ToString(), " ", state);
}

}  // namespace tandem::comm
