#include "trainer/loop/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "absl/strings/str_format.h"
#include "trainer/loop/run_output.h"

namespace tandem::loop {

namespace {
constexpr double kTerminalSeconds = 0.1;  // between redraws of the line
constexpr double kPlainSeconds = 5.0;     // between plain lines
}  // namespace

std::string DurationText(double seconds) {
  const auto s = static_cast<int64_t>(std::max(0.0, seconds) + 0.5);
  if (s < 3600) return absl::StrFormat("%d:%02d", s / 60, s % 60);
  return absl::StrFormat("%d:%02d:%02d", s / 3600, s / 60 % 60, s % 60);
}

std::string CountText(double value) {
  std::string digits = absl::StrFormat("%.0f", value);
  for (int i = static_cast<int>(digits.size()) - 3; i > 0; i -= 3) digits.insert(static_cast<size_t>(i), ",");
  return digits;
}

Progress::Progress(LogFormat format) : format_(format), terminal_(isatty(STDOUT_FILENO) == 1) {}

void Progress::Step(const StepRecord& r, int64_t total_steps) {
  if (format_ == LogFormat::JSON) return;
  if (first_step_ < 0) {
    first_step_ = r.step;
    since_first_.Lap();
  }
  const bool last = r.step == total_steps;
  if (printed_ && !last && since_print_.Seconds() < (terminal_ ? kTerminalSeconds : kPlainSeconds)) return;
  printed_ = true;
  since_print_.Lap();
  const double done = static_cast<double>(r.step - first_step_);
  const double left = static_cast<double>(total_steps - r.step);
  const std::string eta = done > 0 ? DurationText(since_first_.Seconds() / done * left) : "-";
  const double total = std::max(1e-9, r.compute_ms + r.collective_ms + r.pull_ms + r.push_ms);
  auto percent = [total](double ms) { return static_cast<int>(std::lround(100 * ms / total)); };
  const std::string mfu = r.mfu > 0 ? absl::StrFormat("MFU %.0f%%  ", 100 * r.mfu) : "";
  const std::string line = absl::StrFormat(
      "step %d/%d  loss %.4f  %s samples/s  %s tokens/s  %scompute %d%% collectives %d%% pull %d%% push %d%%  ETA %s", r.step,
      total_steps, r.loss, CountText(r.samples_per_second), CountText(r.tokens_per_second), mfu, percent(r.compute_ms),
      percent(r.collective_ms), percent(r.pull_ms), percent(r.push_ms), eta);
  if (terminal_) {
    std::printf("\r\033[K%s", line.c_str());
    drawn_ = true;
  } else {
    std::printf("%s\n", line.c_str());
  }
  std::fflush(stdout);
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

void Progress::Json(const std::string& object) {
  if (format_ != LogFormat::JSON) return;
  std::printf("%s\n", object.c_str());
  std::fflush(stdout);
}

void Progress::End() { Erase(); }

}  // namespace tandem::loop
