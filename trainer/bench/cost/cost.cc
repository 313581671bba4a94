#include "trainer/bench/cost/cost.h"

#include <algorithm>

#include "proto/bench.pb.h"

namespace tandem::bench {

namespace {

// Seconds on a link for `bytes` one way.
double LinkSeconds(double bytes, const Machines& where) {
  if (where.bits_per_second <= 0) return 0;
  return std::max(0.0, bytes * kHeaders - where.burst_bytes) * 8 / where.bits_per_second;
}

// Fills in seconds and limit from the parts.
void Finish(const Machines& where, Cost* cost) {
  cost->moving /= where.member_cores;
  cost->updating /= where.member_cores;
  const double path = cost->latency + std::max(cost->link, cost->moving) + cost->updating;
  const double shared =
      where.cores > 0 ? (cost->work_of_trainers + cost->work_of_servers) / where.cores : 0;
  cost->seconds = std::max(path, shared);
  const double work = std::max(cost->link, cost->moving) == cost->link
                          ? cost->updating
                          : cost->moving + cost->updating;
  cost->limit = shared > path                                 ? Cost::CORES
                : cost->link >= std::max(work, cost->latency) ? Cost::LINK
                : work >= cost->latency                       ? Cost::WORK
                                                              : Cost::LATENCY;
}

}  // namespace

std::string NameOf(Cost::Limit limit) {
  constexpr const char* kNames[] = {"latency", "link", "work", "cores"};
  return kNames[limit];
}

const TransportCosts& TransportOf(const Machines& where, const CostProfile& costs) {
  return where.transport == Machines::SHM   ? costs.shm()
         : where.transport == Machines::TCP ? costs.tcp()
                                            : costs.network();
}

Cost RingCost(const Synchronisation& what, const Machines& where, const CostProfile& costs) {
  const TransportCosts& transport = TransportOf(where, costs);
  const double n = what.trainers, messages = 2 * (n - 1),
               moved = 2 * (n - 1) / n * what.bytes;  // sent by each, and received
  Cost cost;
  cost.trainer_bytes = 2 * moved;
  cost.latency = messages * transport.ring_message_us() * 1e-6;
  // The bucket of a capped link fills again while a message is on its way.
  cost.link = LinkSeconds(moved, where);
  cost.moving = moved * transport.ring_ns_per_byte() * 1e-9;
  cost.updating = what.bytes * costs.update_ns_per_byte() * 1e-9;
  cost.work_of_trainers = n * (cost.moving + cost.updating);
  Finish(where, &cost);
  return cost;
}

Cost ServerCost(const Synchronisation& what, const Machines& where, const CostProfile& costs) {
  const TransportCosts& transport = TransportOf(where, costs);
  const double n = what.trainers, s = what.servers, one_way = what.bytes_per_trainer,
               served = n * one_way / s;  // received by a server, and sent
  const double rows = one_way / what.row_bytes;
  Cost cost;
  cost.trainer_bytes = 2 * one_way;
  cost.server_bytes = 2 * served;
  cost.latency = transport.call_us() * 1e-6;
  // All pushes end before the step is committed, and pulls begin after that.
  cost.link = 2 * LinkSeconds(std::max(one_way, served), where);
  const double trainer = (2 * one_way * transport.trainer_ns_per_byte() +
                          2 * rows * costs.trainer_ns_per_row()) *
                         1e-9,
               server = (2 * served * transport.server_ns_per_byte() +
                         2 * n * rows / s * costs.server_ns_per_row()) *
                        1e-9;
  cost.moving = trainer + server;
  cost.updating = what.distinct_bytes / s * costs.apply_ns_per_byte() * 1e-9;
  cost.work_of_trainers = n * (trainer + s * transport.call_trainer_us() * 1e-6);
  cost.work_of_servers = s * (server + cost.updating) + s * n * transport.call_server_us() * 1e-6;
  Finish(where, &cost);
  return cost;
}

}  // namespace tandem::bench
