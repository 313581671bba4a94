#include "trainer/report/progress.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "kernels/base/count_text.h"
#include "kernels/base/terminal.h"

namespace tandem::report {

namespace {
constexpr double kTerminalSeconds = 0.1;  // between redraws of the line
constexpr double kPlainSeconds = 5.0;     // between plain lines
constexpr double kRateSeconds = 3.0;      // over which rates are smoothed
constexpr size_t kLeastColumns = 20;

}  // namespace

std::string DurationText(double seconds) {
  const auto s = static_cast<int64_t>(std::max(0.0, seconds) + 0.5);
  if (s < 3600) return absl::StrFormat("%d:%02d", s / 60, s % 60);
  return absl::StrFormat("%d:%02d:%02d", s / 3600, s / 60 % 60, s % 60);
}

double SmoothedRate::Add(double rate, double seconds) {
  const double weight = any_ ? 1 - std::exp(-seconds / kRateSeconds) : 1;
  any_ = true;
  return rate_ += weight * (rate - rate_);
}

std::string FitLine(const std::vector<std::string>& parts, size_t columns) {
  std::string line = parts.front().substr(0, columns);
  for (size_t i = 1; i < parts.size(); ++i) {
    if (line.size() + 2 + parts[i].size() <= columns) absl::StrAppend(&line, "  ", parts[i]);
  }
  return line;
}

Progress::Progress(LogFormat format) : format_(format), terminal_(isatty(STDOUT_FILENO) == 1) {}

std::vector<std::string> Progress::Parts(const StepRecord& r) {
  const double seconds = since_rate_.Lap();
  const double samples = samples_.Add(r.samples_per_second, seconds),
               tokens = tokens_.Add(r.tokens_per_second, seconds);
  const double done = static_cast<double>(r.step - first_step_),
               left = static_cast<double>(r.total_steps - r.step);
  const double total = std::max(1e-9, r.compute_ms + r.collective_ms + r.pull_ms + r.push_ms);
  const auto percent = [total](double ms) {
    return static_cast<int>(std::lround(100 * ms / total));
  };
  std::vector<std::string> parts{
      absl::StrFormat("step %d/%d", r.step, r.total_steps),
      absl::StrFormat("loss %.4f", r.loss),
      absl::StrCat("ETA ", done > 0 ? DurationText(since_first_.Seconds() / done * left) : "-"),
      absl::StrFormat("epoch %d", r.epoch),
      CountText(samples) + " samples/s",
      absl::StrFormat("compute %d%% collectives %d%% pull %d%% push %d%%", percent(r.compute_ms),
                      percent(r.collective_ms), percent(r.pull_ms), percent(r.push_ms)),
      CountText(tokens) + " tokens/s"};
  if (r.mfu > 0) parts.push_back(absl::StrFormat("MFU %.0f%%", 100 * r.mfu));
  return parts;
}

void Progress::Step(const StepRecord& r) {
  if (format_ == LogFormat::JSON) return;
  if (first_step_ < 0) {
    first_step_ = r.step;
    since_first_.Lap();
  }
  const std::vector<std::string> parts = Parts(r);
  const bool last = r.step == r.total_steps;
  if (printed_ && !last && since_print_.Seconds() < (terminal_ ? kTerminalSeconds : kPlainSeconds))
    return;
  printed_ = true;
  since_print_.Lap();
  if (terminal_) {
    // A full last column would begin a new line.
    std::printf("\r\033[K%s",
                FitLine(parts, std::max(kLeastColumns, TerminalColumns()) - 1).c_str());
    drawn_ = true;
  } else {
    std::printf("%s\n", absl::StrJoin(parts, "  ").c_str());
  }
  std::fflush(stdout);
}

absl::Status Progress::status() const {
  if (std::ferror(stdout) == 0) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      "cannot write standard output: what the run tells there is lost");
}

void Progress::Erase() {
  if (drawn_) std::printf("\r\033[K");
  drawn_ = false;
}

void Progress::Line(const std::string& text) {
  if (format_ == LogFormat::JSON) return;
  Erase();
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

void Progress::Line(const std::vector<std::string>& parts) {
  Line(terminal_ ? FitLine(parts, std::max(kLeastColumns, TerminalColumns()))
                 : absl::StrJoin(parts, "  "));
}

void Progress::Json(const std::string& object) {
  if (format_ != LogFormat::JSON) return;
  std::printf("%s\n", object.c_str());
  std::fflush(stdout);
}

void Progress::End() { Erase(); }

}  // namespace tandem::report
