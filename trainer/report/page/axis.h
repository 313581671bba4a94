// An axis of a chart: the range that it shows, and its ticks with labels.
// Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

namespace tandem::report {

enum class Scale { LINEAR, LOG };

struct Axis {
  std::string title = "";  // with its unit: "step time (ms)"
  Scale scale = Scale::LINEAR;
  bool from_zero = false;  // shows 0, whatever the values are; LOG ignores it
  bool whole = false;      // ticks are whole numbers
};

// The part of an axis that a chart shows. Invariant: low < high, both finite. On LOG: low > 0.
struct AxisRange {
  double low = 0, high = 1;
  Scale scale = Scale::LINEAR;

  // The place of `value`: 0 at `low`, 1 at `high`.
  double Fraction(double value) const;
};

struct Tick {
  double value = 0;
  std::string label;
};

// True if the value has a place on the scale: finite, and above 0 on LOG.
bool IsShown(double value, Scale scale);

// The smallest range that shows all values that have a place. It is wider than a point.
AxisRange RangeOf(const Axis& axis, const std::vector<double>& values);

// Widens a range outwards to round numbers: to multiples of the step of `most` ticks, most often to
// the first and the last tick. On LOG: to 1, 2 or 5 times a power of ten.
AxisRange Rounded(const AxisRange& range, int most);

// At most `most` ticks inside the range, ascending, at round numbers.
// REQUIRES: most >= 2.
std::vector<Tick> Ticks(const AxisRange& range, bool whole, int most);

// Six digits, without an exponent from 0.0001 to 1e15: "0.125", "1234570".
std::string NumberText(double value);

}  // namespace tandem::report
