// The steps of a hybrid case made again in this process: tables here, replicas as threads, nothing on a wire. What is left must be
// what the case left, bit for bit where rows travel in f32. Thread rule: a free function; starts threads and ends them.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/bench.pb.h"
#include "proto/embedding.pb.h"
#include "trainer/bench/pull_push_hybrid.h"

namespace tandem::bench {

// What is wrong with `replica`'s dense parameters and the servers' rows, which `rows` reads in f32; empty: nothing. Where rows travel
// rounded, or servers share a bag, sums round otherwise than here: then rows must have moved as far as here, to within what that explains,
// all of `sampled` together. All commits are applied.
absl::StatusOr<std::string> CompareWithReplay(const PullPushCase& bench, const TableSpec& table, const HybridReplica& replica,
                                              ps::Client& rows, absl::Span<const uint64_t> sampled);

}  // namespace tandem::bench
