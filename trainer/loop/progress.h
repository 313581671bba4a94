// The run as people see it: on a terminal one line that is rewritten in place, elsewhere a plain line now and then, or
// JSON lines on request. Writes to stdout. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/base/clock.h"

namespace tandem::loop {

enum class LogFormat { TEXT, JSON };

struct StepRecord;

class Progress {
 public:
  explicit Progress(LogFormat format);

  void Step(const StepRecord& record, int64_t total_steps);
  // A line that stays; the progress line is redrawn below it.
  void Line(const std::string& text);
  void Json(const std::string& object);
  void End();  // leaves the cursor on a fresh line

  LogFormat format() const { return format_; }

 private:
  void Erase();

  const LogFormat format_;
  const bool terminal_;
  bool drawn_ = false;
  int64_t first_step_ = -1;
  Stopwatch since_first_, since_print_;
  bool printed_ = false;
};

// 75 s -> "1:15"; 3,700 s -> "1:01:40".
std::string DurationText(double seconds);
// 12345.6 -> "12,346".
std::string CountText(double value);

}  // namespace tandem::loop
