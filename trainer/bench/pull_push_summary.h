// The figures of one case of `tandem bench pull-push`: medians over its repetitions, of the reports
// of all its clients. Also the words that name a case's settings, on the command line and in
// output.
// Thread rule: values and pure functions.
#pragma once

#include <string>
#include <vector>

#include "proto/bench.pb.h"

namespace tandem::bench {

const char* ModeName(const PullPushCase& bench);
PullPushCase::Mode ModeOf(const std::string& name);
const char* PathName(const PullPushCase& bench);
const char* IdsName(const PullPushCase& bench);

struct PullPushSummary {
  PullPushCase bench;
  double rows_per_second = 0;   // looked up
  double bytes_per_second = 0;  // ids and rows
  double p50_seconds = 0, p99_seconds = 0;
  // Parts of a client's step: waits, and the time between them.
  double pull_seconds = 0, own_seconds = 0, push_seconds = 0;
  double pull_ratio = 0, push_ratio = 0, ratio = 0;  // relative to raw streams; 0: not measured
  double raw_bytes_per_second = 0;
  std::string wrong;
};

// REQUIRES: every client has reported every repetition.
PullPushSummary Summarise(const PullPushCase& bench, const std::vector<PullPushFigures>& clients);

// The object of --json.
std::string JsonObject(const PullPushSummary& summary);

}  // namespace tandem::bench
