// What a cudaStream_t of the emulated device points to. The device does at once what a queue is given, except collectives of the
// stand-in for NCCL: those finish later, by themselves, and a queue counts them so that what comes after can wait for them. While it is
// recorded it keeps what it is given; what CUDA does not allow then spoils the recording.
// A shared library that is loaded finds the same layout here and nothing else: there is no code to link.
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
  // Collectives given to this queue so far, and how many of the first of them are done. Changed by Submit and Complete only.
  std::atomic<int64_t> submitted = 0, completed = 0;

  // The number of one more collective; the first is number 1.
  int64_t Submit() {
    const std::lock_guard lock(mutex);
    spoilt = recording;  // the stand-in knows no recorded collectives
    return ++submitted;
  }
  // Collectives of different communicators may end out of order when they are aborted; `completed` counts without gaps.
  void Complete(int64_t number) {
    const std::lock_guard lock(mutex);
    early.insert(number);
    while (early.erase(completed + 1) > 0) ++completed;
    changed.notify_all();  // under the lock: whoever waits may free the queue as soon as it has the lock
  }

  void WaitFor(int64_t number) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return completed >= number; });
  }
  void WaitUntilIdle() { WaitFor(submitted); }
  // Whether it is idle before that is over.
  bool IsIdleWithin(std::chrono::nanoseconds timeout) {
    std::unique_lock lock(mutex);
    // By the system's clock: thread sanitizers do not follow waits by the steady one.
    const auto end = std::chrono::system_clock::now() + timeout;
    return changed.wait_until(lock, end, [&, number = submitted.load()] { return completed >= number; });
  }

  // Of kernels, and of copies within the device's memory.
  void Give(std::function<void()> work) {
    if (!recording) work();
    else if (!spoilt) recorded.push_back(std::move(work));
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::set<int64_t> early;              // done before others that were submitted earlier
  std::shared_ptr<EmulatedQueue> self;  // the owner's; events keep a queue alive beyond it
  bool recording = false, spoilt = false;
  std::vector<std::function<void()>> recorded;
};
