#include "trainer/bench/sync/points.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/status_macros.h"
#include "trainer/bench/ids.h"
#include "trainer/bench/members/capped_link.h"

namespace tandem::bench {

namespace {

constexpr uint64_t kKilo = uint64_t{1} << 10, kMega = uint64_t{1} << 20;

SyncPoint Dense(uint64_t bytes, uint32_t trainers, uint32_t servers, SyncPoint::Link link) {
  SyncPoint point;
  point.set_what(SyncPoint::DENSE);
  point.set_bytes(bytes);
  point.set_dim(kDenseDim);
  point.set_share(1);
  point.set_trainers(trainers);
  point.set_servers(servers);
  point.set_link(link);
  return point;
}

SyncPoint Table(uint64_t bytes, double share, PullPushCase::Ids ids, SyncPoint::Link link,
                uint32_t trainers = 2, uint32_t servers = 1) {
  SyncPoint point = Dense(bytes, trainers, servers, link);
  point.set_what(SyncPoint::TABLE);
  point.set_dim(kTableDim);
  point.set_share(share);
  point.set_ids(ids);
  return point;
}

// The points over a link, without their ways.
std::vector<SyncPoint> Points(SyncPoint::Link link, bool quick) {
  using Ids = PullPushCase;
  std::vector<SyncPoint> points;
  for (const uint64_t bytes : {4 * kKilo, 64 * kKilo, kMega, 16 * kMega})
    points.push_back(Dense(bytes, 2, 1, link));
  for (const double share : {1e-3, 1e-2, 0.1, 1.0})
    points.push_back(Table(16 * kMega, share, Ids::UNIFORM, link));
  if (quick) return points;
  for (const uint64_t bytes : {256 * kKilo, 4 * kMega, 64 * kMega, 256 * kMega})
    points.push_back(Dense(bytes, 2, 1, link));
  for (const uint64_t bytes : {64 * kKilo, kMega, 16 * kMega}) {
    points.push_back(Dense(bytes, 1, 1, link));
    points.push_back(Dense(bytes, 2, 2, link));
    points.push_back(Dense(bytes, 3, 1, link));
    points.push_back(Dense(bytes, 4, 1, link));
    points.push_back(Dense(bytes, 4, 2, link));
  }
  for (const double share : {1e-2, 0.1, 1.0})
    points.push_back(Table(kMega, share, Ids::UNIFORM, link));
  points.push_back(Table(16 * kMega, 1e-4, Ids::UNIFORM, link));
  for (const double share : {1e-3, 1e-2, 0.1})
    points.push_back(Table(16 * kMega, share, Ids::ZIPF, link));
  for (const double share : {1e-4, 1e-2})
    points.push_back(Table(256 * kMega, share, Ids::UNIFORM, link));
  for (const uint32_t servers : {1, 2}) {
    points.push_back(Table(kMega, 0.1, Ids::UNIFORM, link, 4, servers));
    points.push_back(Table(16 * kMega, 1e-2, Ids::UNIFORM, link, 4, servers));
  }
  return points;
}

}  // namespace

absl::StatusOr<SyncLink> LinkOf(const std::string& text) {
  if (text == "shm") return SyncLink{SyncPoint::SHM};
  if (text == "tcp") return SyncLink{SyncPoint::TCP};
  ASSIGN_OR_RETURN(const double rate, RateOf(text));
  return SyncLink{SyncPoint::CAPPED, rate};
}

std::vector<SyncPoint> SyncPoints(const SyncLink& link, bool quick) {
  std::vector<SyncPoint> points;
  for (SyncPoint& point : Points(link.link, quick)) {
    point.set_bits_per_second(link.bits_per_second);
    point.set_seconds(quick ? 0.4 : 0.8);
    for (const SyncPoint::Way way : {SyncPoint::RING, SyncPoint::SERVERS}) {
      point.set_way(way);
      points.push_back(point);
    }
  }
  return points;
}

std::string LinkText(const SyncPoint& point) {
  if (point.link() != SyncPoint::CAPPED) return point.link() == SyncPoint::SHM ? "shm" : "tcp";
  const double megabits = point.bits_per_second() / 1e6;
  return megabits < 1000 ? absl::StrFormat("%gmbit", megabits)
                         : absl::StrFormat("%ggbit", megabits / 1000);
}

std::string SizeText(uint64_t bytes) {
  return bytes < kMega ? absl::StrCat(bytes / kKilo, " KB") : absl::StrCat(bytes / kMega, " MB");
}

std::string NameOf(const SyncPoint& point) {
  const bool ring = point.way() == SyncPoint::RING;
  std::string name =
      absl::StrCat(ring ? "ring" : "ps", " ", point.what() == SyncPoint::DENSE ? "dense" : "table",
                   " ", SizeText(point.bytes()));
  if (point.what() == SyncPoint::TABLE)
    absl::StrAppend(&name, absl::StrFormat(", %g of the rows", point.share()));
  absl::StrAppend(&name, ", ", point.trainers(), " trainers");
  if (!ring) absl::StrAppend(&name, ", ", point.servers(), " servers");
  return absl::StrCat(name, ", ", LinkText(point));
}

uint64_t RowsOf(const SyncPoint& point) {
  return std::max<uint64_t>(1, point.bytes() / (sizeof(float) * point.dim()));
}

std::vector<uint64_t> IdsOf(const SyncPoint& point, uint32_t trainer, uint64_t step) {
  const uint64_t rows = RowsOf(point), batch = step % kSyncBatches;
  const auto wanted = std::clamp<uint64_t>(
      static_cast<uint64_t>(std::llround(point.share() * static_cast<double>(rows))), 1, rows);
  std::vector<uint64_t> ids;
  if (wanted == rows) {
    ids.resize(rows);
    std::iota(ids.begin(), ids.end(), 1);
    return ids;
  }
  const bool zipf = point.ids() == PullPushCase::ZIPF;
  IdSource source(rows, zipf ? IdDistribution::ZIPF : IdDistribution::UNIFORM, trainer);
  // Frequent ids of Zipf's law come again and again, as in a batch. Uniform ids are drawn until
  // there are enough different ones.
  while (ids.size() < wanted) {
    for (uint64_t missing = wanted - ids.size(); missing > 0; --missing)
      ids.push_back(source.Next(batch));
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    if (zipf) break;
  }
  return ids;
}

float GradientOf(uint32_t trainer, uint64_t id, uint32_t column, uint64_t step) {
  const uint64_t batch = step % kSyncBatches;
  return 0.25f * static_cast<float>((trainer + 1) * (1 + (id * 31 + column * 7 + batch * 3) % 5));
}

double WeightAfter(const SyncPoint& point, uint64_t id, uint32_t column, uint64_t steps) {
  double sums[kSyncBatches] = {};
  for (uint64_t batch = 0; batch < kSyncBatches; ++batch) {
    for (uint32_t trainer = 0; trainer < point.trainers(); ++trainer) {
      const std::vector<uint64_t> ids = IdsOf(point, trainer, batch);
      if (std::binary_search(ids.begin(), ids.end(), id))
        sums[batch] += GradientOf(trainer, id, column, batch);
    }
  }
  double weight = 0, squares = 0;
  for (uint64_t step = 1; step <= steps; ++step) {
    const double gradient = sums[step % kSyncBatches];
    if (gradient == 0) continue;
    squares += gradient * gradient;
    weight -= kSyncRate * gradient / (std::sqrt(squares) + kSyncEpsilon);
  }
  return weight;
}

}  // namespace tandem::bench
