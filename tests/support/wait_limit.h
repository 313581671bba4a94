// Limits waits that take no deadline: a join, a Notification, a call that returns when the job has
// ended.
// A test whose event never comes ends soon and names the event.
// Thread rule: any thread; one limit per wait.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace tandem::support {

// Long enough for anything that takes milliseconds on an idle machine. No test waits longer than 30
// s for an event that never comes.
inline constexpr absl::Duration kPatience = absl::Seconds(20);
inline absl::Time Soon() { return absl::Now() + kPatience; }

// Ends the process if it lives longer than kPatience.
class WaitLimit {
 public:
  explicit WaitLimit(std::string what) : what_(std::move(what)), watch_([this] { Watch(); }) {}
  ~WaitLimit() {
    over_.Notify();
    watch_.join();
  }
  WaitLimit(const WaitLimit&) = delete;
  WaitLimit& operator=(const WaitLimit&) = delete;

 private:
  void Watch() {
    if (over_.WaitForNotificationWithTimeout(kPatience)) return;
    std::fprintf(stderr, "waited %s for %s, which never came\n",
                 absl::FormatDuration(kPatience).c_str(), what_.c_str());
    std::abort();
  }

  const std::string what_;
  absl::Notification over_;
  std::thread watch_;
};

// Returns the call's result. Ends the process if the call takes longer than kPatience.
template <class Call>
auto Await(const std::string& what, const Call& call) {
  const WaitLimit limit(what);
  return call();
}

}  // namespace tandem::support
