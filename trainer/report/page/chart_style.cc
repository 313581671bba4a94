#include "trainer/report/page/chart_style.h"

#include <cmath>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/strings/substitute.h"

namespace tandem::report {

namespace {

// Okabe and Ito's palette for colour-blind readers, darkened until it has contrast on white.
constexpr const char* kColours[kNumColours] = {"#0072b2", "#c2410c", "#00855f", "#9b5de0",
                                               "#a16207", "#c0267f", "#4b6b88", "#5f7a1c"};
constexpr const char* kDashes[] = {"", "7 3", "2 3", "9 3 2 3", "4 4", "12 3 2 3 2 3", "1 5"};
constexpr const char* kShades[] = {"0.95", "0.55", "0.25", "0.05", "0.75", "0.4"};
// Paths around ($0, $1), closed or of strokes.
constexpr const char* kMarkers[] = {"M$0 $1m-3 0a3 3 0 1 0 6 0a3 3 0 1 0 -6 0z",
                                    "M$0 $1m-3 -3h6v6h-6z",
                                    "M$0 $1m0 -4l4 7h-8z",
                                    "M$0 $1m0 -4l4 4l-4 4l-4 -4z",
                                    "M$0 $1m-3 -3l6 6m0 -6l-6 6",
                                    "M$0 $1m0 4l4 -7h-8z",
                                    "M$0 $1m-4 0h8m-4 -4v8"};

}  // namespace

std::string StrokeOf(size_t number) {
  number %= kNumColours;
  return absl::StrCat(" class=\"s", number, "\" stroke=\"", kColours[number], "\"");
}

std::string FillOf(size_t number) {
  number %= kNumColours;
  return absl::StrCat(" class=\"f", number, "\" fill=\"", kColours[number], "\"");
}

std::string DashesOf(size_t number) {
  const char* dashes = kDashes[number % std::size(kDashes)];
  return *dashes == '\0' ? "" : absl::StrCat(" stroke-dasharray=\"", dashes, "\"");
}

std::string ShadeOf(size_t number) {
  return absl::StrCat(" fill-opacity=\"", kShades[number % std::size(kShades)], "\"");
}

std::string MarkerAt(size_t number, double x, double y) {
  const char* marker = kMarkers[number % std::size(kMarkers)];
  // Every second round of markers is filled.
  const bool filled = number / std::size(kMarkers) % 2 == 1;
  return absl::StrCat("<path d=\"", absl::Substitute(marker, Place(x), Place(y)), "\"",
                      filled ? " fill=\"currentColor\"" : "", StrokeOf(number), "/>\n");
}

std::string Place(double value) {
  const double tenths = std::round(value * 10);
  const auto whole = static_cast<int64_t>(tenths);
  return whole % 10 == 0 ? absl::StrCat(whole / 10) : absl::StrFormat("%.1f", tenths / 10);
}

}  // namespace tandem::report
