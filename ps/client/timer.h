// Runs callbacks at given times on a thread of its own. A client uses the timer for deadlines and
// for pauses before reconnecting.
// Thread rule: any thread schedules and cancels. Callbacks run one at a time and must be short.
// Stop drops callbacks that have not started.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tandem::ps {

class Timer {
 public:
  using Key = std::pair<absl::Time, uint64_t>;

  Timer();
  ~Timer() { Stop(); }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  // Schedules a callback. Does nothing after Stop.
  Key Schedule(absl::Time when, std::function<void()> callback);
  // Cancels a callback. Does nothing if the callback has started.
  void Cancel(Key key);
  // Stops the timer and waits for a running callback.
  // REQUIRES: not called from a callback.
  void Stop();

 private:
  void Run();

  absl::Mutex mutex_;
  std::map<Key, std::function<void()>> callbacks_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_number_ ABSL_GUARDED_BY(mutex_) = 0;
  // True if a new callback is due before the time that the thread waits for.
  bool changed_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tandem::ps
