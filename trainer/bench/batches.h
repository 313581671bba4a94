// The ids that `tandem bench pull-push` looks up, and the row sums to expect in modes without a
// net. Weights, gradients and the rate are small integers in these modes. So f32 sums are exact,
// and every row after the run is known. In PULL_PUSH a gradient has the opposite sign of its
// weight. So one row pulled stale or applied twice changes all later steps. Everything is a
// function of the case, so each process makes it for itself.
// Thread rule: free functions.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "proto/bench.pb.h"

namespace tandem::bench {

inline constexpr int kNumBatches = 8;     // per client; steps use them in turn
inline constexpr size_t kSampleIds = 26;  // looked up for a sample, as in Criteo's data

// True if a batch holds samples, which may repeat ids. False if a batch holds distinct ids.
inline bool HasSamples(const PullPushCase& bench) {
  return bench.mode() != PullPushCase::PULL && bench.mode() != PullPushCase::PUSH;
}
inline bool IsPooled(const PullPushCase& bench) {
  return bench.mode() == PullPushCase::POOLED || bench.mode() == PullPushCase::HYBRID_POOLED;
}
inline bool IsHybrid(const PullPushCase& bench) {
  return bench.mode() == PullPushCase::HYBRID || bench.mode() == PullPushCase::HYBRID_POOLED;
}

size_t IdsPerStep(const PullPushCase& bench);
// The bytes of a pull or a push, one way. RowBytes counts ids and their rows; PooledBytes counts
// the bags of a step and a row for each bag.
double RowBytes(const PullPushCase& bench, size_t num_ids);
double PooledBytes(const PullPushCase& bench);
// The batches of one client.
std::vector<std::vector<uint64_t>> MakeBatches(const PullPushCase& bench, uint32_t client);

// The weights of a row before the first step.
inline float FirstWeight(uint64_t id, uint32_t column) {
  return static_cast<float>((id * 7 + column) % 17) - 8.0f;
}
// The largest number of an id's occurrences in a batch that count: gradients up to 256 are exact in
// bf16 and f16 too.
inline constexpr uint32_t kMostCounted = 64;
// An occurrence of an id adds 1 to 4 to the id's gradient. The numbers of row `id` begin at
// GradientPattern(dim)[id % 4].
std::vector<float> GradientPattern(uint32_t dim);
// The sign of step `step` (from 0) in PUSH and POOLED, where no weight is known. The step pushes
// sign times the pattern. POOLED uses the pattern from 0 on, because a gradient there belongs to a
// bag.
inline float PushSign(uint64_t step) { return step / kNumBatches % 2 == 0 ? 1.0f : -1.0f; }

// The rows of `ids` after `num_steps` steps of all clients: [ids.size(), dim].
std::vector<float> ExpectedRows(const PullPushCase& bench, absl::Span<const uint64_t> ids,
                                uint64_t num_steps);

}  // namespace tandem::bench
