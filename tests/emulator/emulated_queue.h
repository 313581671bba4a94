// The queue behind a cudaStream_t of the emulated device. The device runs queued work at once.
// Collectives of the stand-in for NCCL are the exception: they finish later. A queue counts
// collectives so that later work can wait for them.
// A recording queue keeps its work. A call that CUDA forbids while recording spoils the recording.
// A shared library that is loaded shares this layout only: the header has no code to link.
// Thread rule: any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

struct EmulatedQueue {
  // Collectives given to this queue so far, and how many of the earliest are done. Only Submit and
  // Complete change them.
  std::atomic<int64_t> submitted = 0, completed = 0;

  // Returns the number of a new collective. Numbers begin at 1.
  int64_t Submit() {
    const std::lock_guard lock(mutex);
    spoilt = recording;  // the stand-in knows no recorded collectives
    return ++submitted;
  }
  // Marks a collective as done. Aborted collectives of different communicators may end out of
  // order; `completed` counts without gaps.
  void Complete(int64_t number) {
    const std::lock_guard lock(mutex);
    early.insert(number);
    while (early.erase(completed + 1) > 0) ++completed;
    changed.notify_all();  // under the lock: whoever waits may free the queue as soon as it has the
                           // lock
  }

  void WaitFor(int64_t number) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return completed >= number; });
  }
  void WaitUntilIdle() { WaitFor(submitted); }
  // Returns true if the queue becomes idle within `timeout`.
  bool IsIdleWithin(std::chrono::nanoseconds timeout) {
    std::unique_lock lock(mutex);
    // Uses the system clock, because thread sanitizers do not follow waits by the steady clock.
    const auto end = std::chrono::system_clock::now() + timeout;
    return changed.wait_until(lock, end,
                              [&, number = submitted.load()] { return completed >= number; });
  }

  // Runs or records a kernel, or a copy within the device's memory.
  void Give(std::function<void()> work) {
    if (!recording)
      work();
    else if (!spoilt)
      recorded.push_back(std::move(work));
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::set<int64_t> early;              // done before others that were submitted earlier
  std::shared_ptr<EmulatedQueue> self;  // the owner's; events keep a queue alive beyond it
  bool recording = false, spoilt = false;
  std::vector<std::function<void()>> recorded;
};
