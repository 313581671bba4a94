#include "trainer/bench/plan/plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "trainer/bench/figures.h"
#include "trainer/parallel/served/served_parameters.h"

namespace tandem::bench {

namespace {

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

// Both ways of one table, or of all dense parameters together.
struct BothWays {
  Cost ring, servers;
  int trainers = 1, num_servers = 1;

  bool by_servers() const { return servers.seconds < ring.seconds; }
};

// Says why `ways` have their winner. The bytes of the busiest members explain most; else what
// limits the slower way.
std::string Reason(const BothWays& ways) {
  const double of_ring = ways.ring.trainer_bytes,
               of_servers = std::max(ways.servers.trainer_bytes, ways.servers.server_bytes);
  if (of_ring == 0)
    return ways.by_servers() ? "a lone trainer would update every row itself"
                             : "a lone trainer needs nobody else's gradients";
  const std::string server = ways.num_servers == 1 ? "the server" : "each server";
  if (ways.by_servers() && of_ring > 1.05 * of_servers)
    return absl::StrCat("a ring would carry ", RatioText(of_ring / ways.servers.trainer_bytes),
                        " times the bytes");
  if (!ways.by_servers() && of_servers > 1.05 * of_ring)
    return absl::StrCat(server, " would carry ", RatioText(of_servers / of_ring),
                        " times a trainer's bytes in a ring");
  return absl::StrCat(ways.by_servers() ? "a ring is" : "servers are", " limited by ",
                      LimitText((ways.by_servers() ? ways.ring : ways.servers).limit));
}

std::string ReasonOfTable(const TableUse& table, const BothWays& ways) {
  if (table.rows_of_trainer == 0) return "no row was used in the first batches";
  return absl::StrCat(PercentText(table.share()), " of its rows a step: ", Reason(ways));
}

BothWays Compare(const Synchronisation& what, const Machines& machines, const CostProfile& costs) {
  return {RingCost(what, machines, costs), ServerCost(what, machines, costs), what.trainers,
          what.servers};
}

}  // namespace

Plan MakePlan(const Inventory& inventory, int trainers, int servers, const Machines& machines,
              const CostProfile& costs) {
  Plan plan;
  const bool has_servers = servers > 0;
  const auto add = [&](PlanEntry entry) {
    if (!has_servers) entry.reason = "there is no server";
    entry.by_servers = has_servers && entry.server_seconds < entry.ring_seconds;
    plan.all_ring += entry.ring_seconds;
    plan.all_servers += entry.server_seconds;
    plan.hybrid += entry.is_table ? entry.server_seconds : entry.ring_seconds;
    plan.planned += entry.by_servers ? entry.server_seconds : entry.ring_seconds;
    plan.entries.push_back(std::move(entry));
  };
  for (const TableUse& table : inventory.tables) {
    const auto row_bytes = static_cast<double>(table.dim * sizeof(float));
    BothWays ways = Compare({.bytes = table.bytes(),
                             .bytes_per_trainer = table.rows_of_trainer * row_bytes,
                             .distinct_bytes = table.distinct_rows * row_bytes,
                             .row_bytes = row_bytes,
                             .trainers = trainers,
                             .servers = std::max(servers, 1)},
                            machines, costs);
    // One call carries the rows of all tables.
    const auto tables = static_cast<double>(inventory.tables.size());
    ways.servers.seconds -= ways.servers.latency * (1 - 1 / tables);
    add({.name = table.name,
         .is_table = true,
         .bytes = table.bytes(),
         .share = table.share(),
         .ring_seconds = ways.ring.seconds,
         .server_seconds = ways.servers.seconds,
         .reason = ReasonOfTable(table, ways)});
  }
  double bytes = 0;
  for (const DenseUse& dense : inventory.dense) bytes += dense.bytes();
  const BothWays ways = Compare({.bytes = bytes,
                                 .bytes_per_trainer = bytes,
                                 .distinct_bytes = bytes,
                                 .row_bytes = parallel::kChunk * sizeof(float),
                                 .trainers = trainers,
                                 .servers = std::max(servers, 1)},
                                machines, costs);
  for (const DenseUse& dense : inventory.dense) {
    const double part = dense.bytes() / bytes;
    add({.name = dense.name,
         .count = dense.count,
         .bytes = dense.bytes(),
         .ring_seconds = ways.ring.seconds * part,
         .server_seconds = ways.servers.seconds * part,
         .reason = absl::StrCat("every weight, every step: ", Reason(ways))});
  }
  return plan;
}

}  // namespace tandem::bench
