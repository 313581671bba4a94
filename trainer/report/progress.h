// The progress of a run for people, on stdout. On a terminal it is one line that is rewritten in
// place and fits the terminal. Elsewhere it is a plain line now and then, or JSON lines on request.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/base/clock.h"
#include "trainer/report/step_observer.h"

namespace tandem::report {

enum class LogFormat { TEXT, JSON };

// A rate that the eye can follow: the mean over some seconds, in which the latest ones weigh most.
class SmoothedRate {
 public:
  // `seconds` is the time since the last call. Returns the smoothed rate.
  double Add(double rate, double seconds);

 private:
  double rate_ = 0;
  bool any_ = false;
};

// Joins as many of `parts`, the most important first, as fit `columns` with two spaces between. The
// first part always appears, cut if necessary.
std::string FitLine(const std::vector<std::string>& parts, size_t columns);

class Progress {
 public:
  explicit Progress(LogFormat format);

  void Step(const StepRecord& record);
  // Prints a line that stays. The progress line is redrawn below it.
  void Line(const std::string& text);
  // Like Line, with as many parts as fit a terminal, the most important first.
  void Line(const std::vector<std::string>& parts);
  void Json(const std::string& object);
  void End();  // leaves the cursor on a fresh line

  // ResourceExhausted once a write to standard output has failed.
  absl::Status status() const;

 private:
  // The parts of a step's line, the most important first.
  std::vector<std::string> Parts(const StepRecord& r);
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
