#include "trainer/bench/plan/plan.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "trainer/bench/figures.h"
#include "trainer/parallel/served/served_parameters.h"

namespace tandem::bench {

namespace {

// "43 times", "1.9 times"
std::string Times(double ratio) {
  return absl::StrFormat(ratio < 9.95 ? "%.1f times" : "%.0f times", ratio);
}

std::string LimitText(Cost::Limit limit) {
  switch (limit) {
    case Cost::LATENCY:
      return "messages' latency";
    case Cost::LINK:
      return "the link";
    case Cost::WORK:
      return "copying and updating";
    case Cost::CORES:
      return "the machine's cores";
  }
  return "";
}

// Why a table goes the way it goes. Bytes decide first, then what else limits the ways.
std::string ReasonOfTable(const TableUse& table, const Cost& ring, const Cost& servers) {
  const double share = table.rows_of_trainer / static_cast<double>(table.rows);
  const std::string rows = absl::StrCat(PercentText(share), " of its rows a step");
  // A table of one trainer moves by a ring not at all.
  if (ring.trainer_bytes == 0)
    return absl::StrCat("one trainer has nobody to send to; it updates ",
                        servers.seconds < ring.seconds ? "all rows, a server only those of the step"
                                                       : "in its own memory");
  const double ratio = ring.trainer_bytes / servers.trainer_bytes;
  if (servers.seconds < ring.seconds) {
    if (ratio > 1) return absl::StrCat(rows, ": a ring would carry ", Times(ratio), " the bytes");
    return absl::StrCat(rows, ": a ring is limited by ", LimitText(ring.limit));
  }
  if (ratio < 1.05)
    return absl::StrCat(rows, ": a server would carry every byte of them, and ids too");
  return absl::StrCat(rows, ": few enough bytes for a ring; servers are limited by ",
                      LimitText(servers.limit));
}

std::string ReasonOfDense(const Cost& ring, const Cost& servers, int trainers, int num_servers) {
  if (trainers == 1) return "one trainer needs nobody else's gradients";
  const double ratio = servers.server_bytes / ring.trainer_bytes;
  if (ring.seconds <= servers.seconds) {
    if (ratio > 1.05)
      return absl::StrCat(
          "every weight, every step: ", num_servers == 1 ? "the server" : "each server",
          " would carry ", Times(ratio), " a trainer's bytes in a ring");
    return absl::StrCat("every weight, every step: servers are limited by ",
                        LimitText(servers.limit));
  }
  return absl::StrCat("a ring is limited by ", LimitText(ring.limit),
                      ", servers share the updating");
}

Synchronisation Of(double bytes, double used, double distinct, double row_bytes, int trainers,
                   int servers) {
  return {.bytes = bytes,
          .bytes_per_trainer = used,
          .distinct_bytes = distinct,
          .row_bytes = row_bytes,
          .trainers = trainers,
          .servers = servers};
}

}  // namespace

Plan MakePlan(const Inventory& inventory, int trainers, int servers, const Machines& machines,
              const CostProfile& costs) {
  Plan plan;
  const auto add = [&](PlanEntry entry) {
    const bool has_servers = servers > 0;
    entry.by_servers = has_servers && entry.server_seconds < entry.ring_seconds;
    plan.all_ring += entry.ring_seconds;
    plan.all_servers += entry.server_seconds;
    plan.hybrid += entry.is_table ? entry.server_seconds : entry.ring_seconds;
    plan.planned += entry.by_servers ? entry.server_seconds : entry.ring_seconds;
    plan.entries.push_back(std::move(entry));
  };
  for (const TableUse& table : inventory.tables) {
    const auto row_bytes = static_cast<double>(table.dim * sizeof(float));
    const Synchronisation what =
        Of(table.bytes(), table.rows_of_trainer * row_bytes, table.distinct_rows * row_bytes,
           row_bytes, trainers, std::max(servers, 1));
    const Cost ring = RingCost(what, machines, costs),
               by_servers = ServerCost(what, machines, costs);
    add({.name = table.name,
         .is_table = true,
         .bytes = table.bytes(),
         .share = table.rows_of_trainer / static_cast<double>(table.rows),
         .ring_seconds = ring.seconds,
         .server_seconds = by_servers.seconds,
         .reason = servers > 0 ? ReasonOfTable(table, ring, by_servers) : "there is no server"});
  }
  double bytes = 0;
  for (const DenseUse& dense : inventory.dense) bytes += dense.bytes();
  constexpr double kRowBytes = parallel::kChunk * sizeof(float);
  const Synchronisation all = Of(bytes, bytes, bytes, kRowBytes, trainers, std::max(servers, 1));
  const Cost ring = RingCost(all, machines, costs), by_servers = ServerCost(all, machines, costs);
  for (const DenseUse& dense : inventory.dense) {
    const double part = dense.bytes() / bytes;
    add({.name = dense.name,
         .count = dense.count,
         .bytes = dense.bytes(),
         .ring_seconds = ring.seconds * part,
         .server_seconds = by_servers.seconds * part,
         .reason = servers > 0 ? ReasonOfDense(ring, by_servers, trainers, servers)
                               : "there is no server"});
  }
  return plan;
}

}  // namespace tandem::bench
