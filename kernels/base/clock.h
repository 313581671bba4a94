// Monotonic time for measuring, and for pure cores that take `now` as an argument.
// Thread rule: MonotonicSeconds from any thread; a Stopwatch from one thread at a time.
#pragma once

#include <chrono>

namespace tandem {

// Seconds since an arbitrary fixed point. Never goes back.
inline double MonotonicSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class Stopwatch {
 public:
  double Seconds() const { return MonotonicSeconds() - start_; }
  // Seconds since construction or the last Lap.
  double Lap() {
    const double now = MonotonicSeconds(), lap = now - start_;
    start_ = now;
    return lap;
  }

 private:
  double start_ = MonotonicSeconds();
};

}  // namespace tandem
