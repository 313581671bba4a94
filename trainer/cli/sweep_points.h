// The runs of a sweep: every combination of the grid's values, each with every seed.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem::cli {

// One `--grid path=v1,v2`.
struct GridAxis {
  std::string path;
  std::vector<std::string> values;
};
// InvalidArgument unless `text` is a path and at least one value.
absl::StatusOr<GridAxis> ParseGridAxis(const std::string& text);

// The seeds of "3" or "1..5", ascending. InvalidArgument unless there are 1 to 1000.
absl::StatusOr<std::vector<uint64_t>> ParseSeeds(const std::string& text);

struct SweepPoint {
  std::string name;               // a folder below --out: "dropout=0.1,batch_size=64/seed-1"
  std::vector<std::string> sets;  // "path=value", the seed last
};
// The points in the order of the first axis, then the second, ..., then the seeds. Without seeds a
// point has the seed of its job, and its name has no "/seed-1".
std::vector<SweepPoint> SweepPoints(const std::vector<GridAxis>& axes,
                                    const std::vector<uint64_t>& seeds);

}  // namespace tandem::cli
