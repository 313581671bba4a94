// The points that `tandem bench sync` measures: who synchronises what, how, over which link.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/bench.pb.h"
#include "trainer/parallel/served/served_parameters.h"

namespace tandem::bench {

// Numbers of a row: a chunk of dense weights, as parallel::ServedParameters cuts them, and a row of
// a table.
inline constexpr uint32_t kDenseDim = parallel::kChunk, kTableDim = 64;

struct SyncLink {
  SyncPoint::Link link = SyncPoint::SHM;
  double bits_per_second = 0;  // of a capped link
};
// "shm", "tcp" or a rate ("1gbit"). InvalidArgument for other text.
absl::StatusOr<SyncLink> LinkOf(const std::string& text);

// The points over a link: a fixed list, not a full product. `quick`: fewer points, for shorter
// times. Both ways of a point lie side by side.
std::vector<SyncPoint> SyncPoints(const SyncLink& link, bool quick);

// "ring dense 1 MB, 2 trainers, shm".
std::string NameOf(const SyncPoint& point);
// "shm", "tcp", "100mbit".
std::string LinkText(const SyncPoint& point);
// "64 KB", "1 MB".
std::string SizeText(uint64_t bytes);

// Rows have numbers 1 .. RowsOf.
uint64_t RowsOf(const SyncPoint& point);
// The distinct rows whose gradients a trainer has in a step, ascending. Steps take turns with
// kSyncBatches batches.
inline constexpr uint64_t kSyncBatches = 4;
std::vector<uint64_t> IdsOf(const SyncPoint& point, uint32_t trainer, uint64_t step);

// The gradient of a trainer for a weight. Differs between trainers and between batches.
float GradientOf(uint32_t trainer, uint64_t id, uint32_t column, uint64_t step);
// The weight after `steps` steps, from 0, in f64: what both ways have to reach.
double WeightAfter(const SyncPoint& point, uint64_t id, uint32_t column, uint64_t steps);

// The step of Adagrad that both ways make. With a small epsilon a weight would hardly depend on the
// sizes of its gradients, and a missing gradient would not show.
inline constexpr double kSyncRate = 0.01, kSyncEpsilon = 1;

}  // namespace tandem::bench
