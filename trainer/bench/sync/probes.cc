#include "trainer/bench/sync/probes.h"

#include <algorithm>
#include <ctime>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "trainer/bench/cost/profile.h"
#include "trainer/bench/members/capped_link.h"
#include "trainer/bench/sync/measure.h"
#include "trainer/bench/sync/points.h"
#include "trainer/cli/process/failure.h"
#include "trainer/cli/version.h"

namespace tandem::bench {

namespace {

constexpr uint64_t kSmall = uint64_t{8} << 10, kLarge = uint64_t{24} << 20;
constexpr double kProbeSeconds = 0.4, kProbeRate = 1e9;

ProbePoint ProbeOf(Probe probe, SyncPoint::Link link) {
  const bool by_servers = probe >= Probe::SERVER_SMALL,
             alone = probe == Probe::RING_ALONE || probe == Probe::SERVER_ONE,
             small = probe == Probe::RING_SMALL || probe == Probe::SERVER_SMALL,
             rows = probe == Probe::SERVER_ROWS;
  SyncPoint point;
  point.set_way(by_servers ? SyncPoint::SERVERS : SyncPoint::RING);
  point.set_what(rows ? SyncPoint::TABLE : SyncPoint::DENSE);
  point.set_bytes(small ? kSmall : kLarge);
  point.set_dim(rows ? kTableDim : kDenseDim);
  point.set_share(1);
  point.set_trainers(alone ? 1 : 2);
  point.set_servers(1);
  point.set_link(link);
  if (link == SyncPoint::CAPPED) point.set_bits_per_second(kProbeRate);
  point.set_seconds(kProbeSeconds);
  return {probe, point};
}

}  // namespace

std::vector<ProbePoint> ProbePoints(bool tcp, bool network) {
  std::vector<ProbePoint> probes;
  for (const Probe probe :
       {Probe::RING_ALONE, Probe::RING_SMALL, Probe::RING_LARGE, Probe::SERVER_SMALL,
        Probe::SERVER_LARGE, Probe::SERVER_ONE, Probe::SERVER_ROWS})
    probes.push_back(ProbeOf(probe, SyncPoint::SHM));
  if (tcp) {
    for (const Probe probe :
         {Probe::RING_SMALL, Probe::RING_LARGE, Probe::SERVER_SMALL, Probe::SERVER_LARGE})
      probes.push_back(ProbeOf(probe, SyncPoint::TCP));
  }
  if (network) probes.push_back(ProbeOf(Probe::SERVER_SMALL, SyncPoint::CAPPED));
  return probes;
}

std::optional<CostProfile> MeasureCosts(const std::vector<ProbePoint>& probes,
                                        const std::function<void(const SyncResult&)>& on_probe,
                                        int* exit_code) {
  std::vector<ProbeFigures> figures;
  for (const ProbePoint& probe : probes) {
    const std::optional<SyncResult> result = Measure(probe.point, exit_code);
    if (!result.has_value()) return std::nullopt;
    if (!result->wrong.empty()) {
      *exit_code = cli::ReportError(
          absl::InternalError(absl::StrCat(NameOf(probe.point), ": ", result->wrong)));
      return std::nullopt;
    }
    figures.push_back({.probe = probe.probe,
                       .transport = WhereOf(probe.point).transport,
                       .what = WhatOf(probe.point),
                       .seconds = result->microseconds * 1e-6,
                       .work_of_trainers = result->cpu_us_trainers * 1e-6,
                       .work_of_servers = result->cpu_us_servers * 1e-6});
    if (on_probe) on_probe(*result);
  }
  CostProfile profile = Fit(figures, TypicalCosts());
  profile.set_machine(cli::ProcessorText());
  profile.set_cores(static_cast<uint32_t>(CoresHere()));
  profile.set_date(absl::FormatTime("%Y-%m-%d", absl::Now(), absl::UTCTimeZone()));
  return profile;
}

Synchronisation WhatOf(const SyncPoint& point) {
  const double row_bytes = sizeof(float) * point.dim();
  Synchronisation what{.bytes = static_cast<double>(RowsOf(point)) * row_bytes,
                       .row_bytes = row_bytes,
                       .trainers = static_cast<int>(point.trainers()),
                       .servers = static_cast<int>(point.servers())};
  if (point.share() == 1) {
    what.bytes_per_trainer = what.distinct_bytes = what.bytes;
    return what;
  }
  for (uint64_t step = 0; step < kSyncBatches; ++step) {
    std::vector<uint64_t> all;
    for (uint32_t trainer = 0; trainer < point.trainers(); ++trainer) {
      const std::vector<uint64_t> ids = IdsOf(point, trainer, step);
      what.bytes_per_trainer +=
          static_cast<double>(ids.size()) * row_bytes / (kSyncBatches * point.trainers());
      all.insert(all.end(), ids.begin(), ids.end());
    }
    std::sort(all.begin(), all.end());
    const auto distinct = std::unique(all.begin(), all.end()) - all.begin();
    what.distinct_bytes += static_cast<double>(distinct) * row_bytes / kSyncBatches;
  }
  return what;
}

Machines WhereOf(const SyncPoint& point) {
  Machines where{.cores = static_cast<double>(CoresHere())};
  if (point.link() == SyncPoint::TCP) where.transport = Machines::TCP;
  if (point.link() == SyncPoint::CAPPED) {
    where.transport = Machines::NETWORK;
    where.bits_per_second = point.bits_per_second();
    where.burst_bytes = BurstBytes(point.bits_per_second());
  }
  return where;
}

Cost CostOf(const SyncPoint& point, const CostProfile& costs) {
  const Synchronisation what = WhatOf(point);
  return point.way() == SyncPoint::RING ? RingCost(what, WhereOf(point), costs)
                                        : ServerCost(what, WhereOf(point), costs);
}

}  // namespace tandem::bench
