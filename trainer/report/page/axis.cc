#include "trainer/report/page/axis.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tandem::report {

namespace {

constexpr double kLargest = 1e300, kSmallest = 1e-300;  // a difference of two stays finite
constexpr double kLeastWidth = 1e-290;                  // of a linear range
constexpr double kSlack = 1e-6;                         // of a step, for rounding errors
constexpr std::array<double, 3> kRound = {1, 2, 5};

// The smallest of 1, 2 and 5 times a power of ten that is at least `value`.
// REQUIRES: value > 0.
double RoundUp(double value) {
  const double power = std::pow(10, std::floor(std::log10(value)));
  for (double factor : kRound) {
    if (value <= factor * power * (1 + 1e-9)) return factor * power;
  }
  return 10 * power;
}

double RoundDown(double value) { return 1 / RoundUp(1 / value); }

// The smallest round step of which at most `most` multiples are in the range.
double StepOf(const AxisRange& range, bool whole, int most) {
  double step = RoundUp((range.high - range.low) / most);
  if (whole) step = std::max(step, 1.0);
  const auto count = [&range](double step) {
    return std::floor(range.high / step + kSlack) - std::ceil(range.low / step - kSlack) + 1;
  };
  while (count(step) > most) step = RoundUp(1.1 * step);
  return step;
}

struct Unit {
  double size;
  const char* name;
};

Unit UnitOf(double largest) {
  for (const Unit& unit : {Unit{1e12, "T"}, Unit{1e9, "G"}, Unit{1e6, "M"}}) {
    if (largest >= unit.size && largest < 1e15) return unit;
  }
  return largest >= 1e4 && largest < 1e15 ? Unit{1e3, "k"} : Unit{1, ""};
}

// A label that tells `value` from the ticks that are `step` away.
std::string Label(double value, double step, const Unit& unit) {
  if (value == 0) return "0";
  const double size = std::abs(value / unit.size);
  if (size < 1e-3 || size >= 1e6) {
    const double digits = std::floor(std::log10(size)) - std::floor(std::log10(step / unit.size));
    return absl::StrFormat("%.*g", static_cast<int>(std::clamp(digits + 1, 1.0, 15.0)), value);
  }
  const int decimals = static_cast<int>(std::ceil(-std::log10(step / unit.size) - 1e-9));
  return absl::StrFormat("%.*f%s", std::clamp(decimals, 0, 9), value / unit.size, unit.name);
}

std::vector<Tick> LinearTicks(const AxisRange& range, bool whole, int most) {
  const double step = StepOf(range, whole, most);
  const Unit unit = UnitOf(std::max(std::abs(range.low), std::abs(range.high)));
  const double first = std::ceil(range.low / step - kSlack);
  std::vector<Tick> ticks;
  for (int i = 0; i < most; ++i) {
    const double value = (first + i) * step;
    if (value > range.high + kSlack * step) break;
    ticks.push_back({value, Label(value, step, unit)});
  }
  return ticks;
}

// Powers of ten; between them 2 and 5 times the power where there is room.
std::vector<Tick> LogTicks(const AxisRange& range, int most) {
  const int first = static_cast<int>(std::floor(std::log10(range.low))),
            last = static_cast<int>(std::ceil(std::log10(range.high)));
  std::vector<double> values;
  const auto collect = [&](int stride, size_t num_factors) {
    values.clear();
    for (int power = first; power <= last; power += stride) {
      for (size_t i = 0; i < num_factors; ++i) {
        const double value = kRound[i] * std::pow(10, power);
        if (range.low * (1 - 1e-9) <= value && value <= range.high * (1 + 1e-9))
          values.push_back(value);
      }
    }
    return values.size() <= static_cast<size_t>(most);
  };
  if (!collect(1, kRound.size())) {
    for (int stride = 1; !collect(stride, 1);) ++stride;
  }
  if (values.size() < 2) return LinearTicks(range, /*whole=*/false, most);
  std::vector<Tick> ticks;
  for (double value : values) ticks.push_back({value, Label(value, value, UnitOf(value))});
  return ticks;
}

}  // namespace

double AxisRange::Fraction(double value) const {
  if (scale == Scale::LINEAR) return (value - low) / (high - low);
  return (std::log10(value) - std::log10(low)) / (std::log10(high) - std::log10(low));
}

bool IsShown(double value, Scale scale) {
  if (!std::isfinite(value) || std::abs(value) > kLargest) return false;
  return scale == Scale::LINEAR || value >= kSmallest;
}

AxisRange RangeOf(const Axis& axis, const std::vector<double>& values) {
  AxisRange range{.scale = axis.scale};
  bool any = false;
  const auto widen = [&](double value) {
    range.low = any ? std::min(range.low, value) : value;
    range.high = any ? std::max(range.high, value) : value;
    any = true;
  };
  for (double value : values) {
    if (IsShown(value, axis.scale)) widen(value);
  }
  if (axis.scale == Scale::LINEAR && axis.from_zero) widen(0);
  if (!any) return {.low = 1, .high = 10, .scale = axis.scale};
  const double size = std::max(std::abs(range.low), std::abs(range.high));
  if (axis.scale == Scale::LOG) {
    if (range.high < range.low * 1.01) range.low /= 2, range.high *= 2;
  } else if (range.high - range.low <= std::max(1e-9 * size, kLeastWidth)) {
    const double margin =
        axis.whole || size <= kLeastWidth ? std::max(1.0, 0.05 * size) : 0.05 * size;
    range.low -= margin, range.high += margin;
  }
  return range;
}

AxisRange Rounded(const AxisRange& range, int most) {
  if (range.scale == Scale::LOG) return {RoundDown(range.low), RoundUp(range.high), Scale::LOG};
  AxisRange wide = range;
  double step = 0;
  // A wider range may need a larger step, whose multiples lie further out. The step only grows, so
  // the loop ends.
  for (double next = StepOf(range, /*whole=*/false, most); next > step;
       next = StepOf(wide, /*whole=*/false, most)) {
    step = next;
    wide = {step * std::floor(range.low / step + kSlack),
            step * std::ceil(range.high / step - kSlack), Scale::LINEAR};
  }
  return wide;
}

std::vector<Tick> Ticks(const AxisRange& range, bool whole, int most) {
  return range.scale == Scale::LOG ? LogTicks(range, most) : LinearTicks(range, whole, most);
}

std::string NumberText(double value) {
  if (!std::isfinite(value))
    return std::isnan(value) ? "NaN" : value > 0 ? "infinity" : "-infinity";
  const double size = std::abs(value);
  if (size >= 1e5 && size < 1e15) return absl::StrFormat("%.0f", value);
  return absl::StrFormat("%.6g", value);
}

}  // namespace tandem::report
