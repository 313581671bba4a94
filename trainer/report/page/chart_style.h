// How the series of a chart are told apart: colour, dashes and marker for lines, shade for bars.
// Colours are attributes. A page may replace them by the classes s0..s7 (stroke) and f0..f7 (fill).
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <string>

namespace tandem::report {

inline constexpr size_t kNumColours = 8;

// The colour of series `number` as attributes. Readable on white and on black.
std::string StrokeOf(size_t number);
std::string FillOf(size_t number);
// The dashes of a line as an attribute; none for series 0.
std::string DashesOf(size_t number);
// The shade of a bar as an attribute. The first four go from dark to light.
std::string ShadeOf(size_t number);
// A marker around (x, y), as an element with its attributes: circle, square, triangle, ...
std::string MarkerAt(size_t number, double x, double y);

// A coordinate with at most one decimal.
std::string Place(double value);

}  // namespace tandem::report
