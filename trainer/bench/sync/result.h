// The figures of a point of `tandem bench sync`, from the reports of its trainers: what the table
// shows and --json holds.
// Thread rule: pure functions and values.
#pragma once

#include <string>
#include <vector>

#include "proto/bench.pb.h"
#include "trainer/bench/cost/cost.h"

namespace tandem::bench {

struct SyncResult {
  SyncPoint point;
  double share = 0;  // distinct rows of a step and trainer, of all rows
  // One synchronisation takes: the median, and what one in ten lies below and above.
  double microseconds = 0, low = 0, high = 0;
  double first_microseconds = 0;  // with connections, buffers and rows that are made once
  // Sent and received by one member in one synchronisation: the mean over trainers, and servers.
  double bytes_per_trainer = 0, bytes_per_server = 0;
  // Computed by all trainers together, and all servers.
  double cpu_us_trainers = 0, cpu_us_servers = 0;
  std::string wrong = "";  // "" if all weights are what the steps make of them
  Cost modelled = {};      // what the model of cost says of the point
  bool fitted = false;     // a probe, on which the model was fitted
  // False if the point would take too long: then only `modelled` tells of the point.
  bool measured = true;
};

// Without `modelled`. REQUIRES: there is a report of every trainer.
SyncResult ResultOf(const SyncPoint& point, const std::vector<MemberReport>& trainers);

std::string JsonOf(const SyncResult& result);

}  // namespace tandem::bench
