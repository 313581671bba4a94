// Repeats the steps of a hybrid case in this process: local tables, replicas as threads, no wire.
// The result must equal the case's result, bit for bit if rows travel in f32.
// Thread rule: a free function; starts threads and joins them.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "trainer/bench/pull_push_hybrid.h"

namespace tandem {
class PullPushCase;  // proto/bench.pb.h
class TableSpec;     // proto/embedding.pb.h
}  // namespace tandem

namespace tandem::bench {

// Returns what is wrong with the dense parameters of `replica` and with the servers' rows, which
// `rows` reads in f32; empty: nothing. If rows travel rounded, or servers share a bag, sums round
// differently from the replay. Then the rows of all `sampled` ids together must have moved as far
// as in the replay. Only the error that rounding explains is allowed.
// REQUIRES: all commits are applied.
absl::StatusOr<std::string> CompareWithReplay(const PullPushCase& bench, const TableSpec& table,
                                              const HybridReplica& replica,
                                              const ps::Clients& clients,
                                              absl::Span<const uint64_t> sampled);

}  // namespace tandem::bench
