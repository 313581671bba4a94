#include "ps/client/timer.h"

#include "absl/time/clock.h"

namespace tandem::ps {

Timer::Timer() : thread_([this] { Run(); }) {}

Timer::Key Timer::Schedule(absl::Time when, std::function<void()> callback) {
  absl::MutexLock lock(&mutex_);
  const Key key(when, next_number_++);
  if (stopping_) return key;
  changed_ |= callbacks_.empty() || key < callbacks_.begin()->first;
  callbacks_.emplace(key, std::move(callback));
  return key;
}

void Timer::Cancel(Key key) {
  std::function<void()> dropped;  // captures are destroyed outside the lock
  absl::MutexLock lock(&mutex_);
  const auto found = callbacks_.find(key);
  if (found == callbacks_.end()) return;
  dropped.swap(found->second);
  callbacks_.erase(found);
}

void Timer::Stop() {
  std::map<Key, std::function<void()>> dropped;
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    dropped.swap(callbacks_);
  }
  if (thread_.joinable()) thread_.join();
}

void Timer::Run() {
  while (true) {
    std::function<void()> due;
    {
      absl::MutexLock lock(&mutex_);
      changed_ = false;
      auto woken = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stopping_ || changed_; };
      const absl::Time next =
          callbacks_.empty() ? absl::InfiniteFuture() : callbacks_.begin()->first.first;
      if (mutex_.AwaitWithDeadline(absl::Condition(&woken), next)) {
        if (stopping_) return;
        continue;
      }
      // The callback may have been cancelled in the meantime.
      if (callbacks_.empty() || callbacks_.begin()->first.first > absl::Now()) continue;
      due.swap(callbacks_.begin()->second);
      callbacks_.erase(callbacks_.begin());
    }
    due();
  }
}

}  // namespace tandem::ps
