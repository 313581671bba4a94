#include "trainer/cli/sweep_points.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "kernels/base/utf8.h"
#include "trainer/job/number_text.h"

namespace tandem::cli {

namespace {

constexpr uint64_t kMostSeeds = 1000;

// A folder's name. A value may be a path.
std::string FolderName(const std::string& text) {
  std::string name;
  for (const char c : text) {
    const bool plain = absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                       std::string("._-+=,[]").find(c) != std::string::npos;
    name += plain ? c : '_';
  }
  return name;
}

// The end of an axis' path by which it differs from the other axes: "dropout" of "model.dropout".
std::string ShortPath(const std::vector<GridAxis>& axes, const GridAxis& axis) {
  const auto last = [](const std::string& path) { return path.substr(path.rfind('.') + 1); };
  const auto is_like = [&](const GridAxis& other) { return last(other.path) == last(axis.path); };
  return std::count_if(axes.begin(), axes.end(), is_like) == 1 ? last(axis.path) : axis.path;
}

absl::Status SeedsError(const std::string& text) {
  return absl::InvalidArgumentError(absl::StrCat("--seeds ", Printable(text),
                                                 "; allowed: a seed, or FIRST..LAST with at most ",
                                                 kMostSeeds, " seeds, as in 1..5"));
}

}  // namespace

absl::StatusOr<GridAxis> ParseGridAxis(const std::string& text) {
  const size_t end = text.find('=');
  GridAxis axis;
  if (end != std::string::npos && end > 0 && end + 1 < text.size()) {
    axis.path = text.substr(0, end);
    axis.values = absl::StrSplit(text.substr(end + 1), ',');
  }
  if (axis.values.empty() || std::count(axis.values.begin(), axis.values.end(), "") > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--grid ", Printable(text),
                     "; allowed: a field's path and its values, as in train.batch_size=64,128"));
  }
  if (axis.path == "seed")
    return absl::InvalidArgumentError("--grid seed=...: give the seeds with --seeds FIRST..LAST");
  return axis;
}

absl::StatusOr<std::vector<uint64_t>> ParseSeeds(const std::string& text) {
  const size_t dots = text.find("..");
  const auto first = ParseMagnitude(text.substr(0, dots), UINT64_MAX);
  const auto last =
      dots == std::string::npos ? first : ParseMagnitude(text.substr(dots + 2), UINT64_MAX);
  if (!first || !last || *last < *first || *last - *first >= kMostSeeds) return SeedsError(text);
  std::vector<uint64_t> seeds;
  for (uint64_t i = 0; i <= *last - *first; ++i) seeds.push_back(*first + i);
  return seeds;
}

std::vector<SweepPoint> SweepPoints(const std::vector<GridAxis>& axes,
                                    const std::vector<uint64_t>& seeds) {
  std::vector<SweepPoint> points{{}};
  const auto multiply = [&points](const auto& values, const auto& add) {
    std::vector<SweepPoint> product;
    for (const SweepPoint& point : points) {
      for (const auto& value : values) add(value, &product.emplace_back(point));
    }
    points = std::move(product);
  };
  for (const GridAxis& axis : axes) {
    const std::string name = ShortPath(axes, axis);
    multiply(axis.values, [&](const std::string& value, SweepPoint* point) {
      absl::StrAppend(&point->name, point->name.empty() ? "" : ",",
                      FolderName(absl::StrCat(name, "=", value)));
      point->sets.push_back(absl::StrCat(axis.path, "=", value));
    });
  }
  if (seeds.empty()) return points;
  multiply(seeds, [](uint64_t seed, SweepPoint* point) {
    absl::StrAppend(&point->name, point->name.empty() ? "" : "/", "seed-", seed);
    point->sets.push_back(absl::StrCat("seed=", seed));
  });
  return points;
}

}  // namespace tandem::cli
