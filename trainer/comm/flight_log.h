// The last operations of one rank's process group. A timeout prints them, so the log of a hung job
// shows which collective each rank was in. A ring of fixed size: new entries overwrite the oldest.
// Thread rule: any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "trainer/comm/collective.h"

namespace tandem::comm {

class FlightLog {
 public:
  static constexpr uint64_t kCapacity = 64;

  // Returns the entry's number, for Start and Finish. Start and Finish ignore an entry that has
  // been overwritten.
  uint64_t Launch(const Description& description);
  void Start(uint64_t number);
  void Finish(uint64_t number, bool ok);

  // The last `count` entries, oldest first, each with its state and times, separated by "; ".
  std::string Last(uint64_t count) const;

 private:
  enum class State { QUEUED, RUNNING, DONE, FAILED };
  struct Entry {
    uint64_t number = 0;
    Description description;
    State state = State::QUEUED;
    double launched = 0, started = 0, finished = 0;  // monotonic seconds
  };
  static std::string ToString(const Entry& entry, double now);

  mutable absl::Mutex mutex_;
  uint64_t launched_ ABSL_GUARDED_BY(mutex_) = 0;
  std::array<Entry, kCapacity> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem::comm
