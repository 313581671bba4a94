// Runs callbacks at given times, on one thread of its own: a client's deadlines and the pauses before it connects again.
// Thread rule: any thread schedules and cancels; callbacks run one at a time and must be short. A callback that has not
// started when the timer stops is dropped.
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

  // After Stop it does nothing.
  Key Schedule(absl::Time when, std::function<void()> callback);
  // Does nothing if the callback has started.
  void Cancel(Key key);
  // Waits for a running callback. Not from a callback.
  void Stop();

 private:
  void Run();

  absl::Mutex mutex_;
  std::map<Key, std::function<void()>> callbacks_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_number_ ABSL_GUARDED_BY(mutex_) = 0;
  bool changed_ ABSL_GUARDED_BY(mutex_) = false;  // something comes earlier than what the thread waits for
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tandem::ps
