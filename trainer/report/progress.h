// The run as people see it: on a terminal one line that is rewritten in place and fits the terminal, elsewhere a plain line now and then,
// or JSON lines on request. Writes to stdout. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/base/clock.h"

namespace tandem::report {

enum class LogFormat { TEXT, JSON };

struct StepRecord;

// A rate as an eye can follow it: the mean over some seconds, the latest ones weighing most.
class SmoothedRate {
 public:
  // `seconds` since the last one. Returns the smoothed rate.
  double Add(double rate, double seconds);

 private:
  double rate_ = 0;
  bool any_ = false;
};

// As many of `parts`, the most important first, as fit `columns` with two spaces between; the first in any case, cut.
std::string FitLine(const std::vector<std::string>& parts, size_t columns);

class Progress {
 public:
  explicit Progress(LogFormat format);

  void Step(const StepRecord& record, int64_t total_steps);
  // A line that stays; the progress line is redrawn below it.
  void Line(const std::string& text);
  // The same of as many parts as fit a terminal, the most important first.
  void Line(const std::vector<std::string>& parts);
  void Json(const std::string& object);
  void End();  // leaves the cursor on a fresh line

  // ResourceExhausted once standard output could not be written.
  absl::Status status() const;

 private:
  // What a step is told by, the most important first.
  std::vector<std::string> Parts(const StepRecord& r, int64_t total_steps);
  void Erase();

  const LogFormat format_;
  const bool terminal_;
  bool drawn_ = false;
  int64_t first_step_ = -1;
  Stopwatch since_first_, since_print_, since_rate_;
  SmoothedRate samples_, tokens_;
  bool printed_ = false;
};

// 75 s -> "1:15"; 3,700 s -> "1:01:40".
std::string DurationText(double seconds);

}  // namespace tandem::report
