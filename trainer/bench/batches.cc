#include "trainer/bench/batches.h"

#include <algorithm>
#include <array>

#include "ps/wire/row_index.h"
#include "ps/wire/wire_codec.h"
#include "trainer/bench/ids.h"

namespace tandem::bench {

namespace {

// [client][batch]: how often each of `ids` occurs.
using Counts = std::vector<std::array<std::vector<uint32_t>, kNumBatches>>;

Counts CountOccurrences(const PullPushCase& bench, absl::Span<const uint64_t> ids) {
  ps::RowIndex places(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) places.FindOrInsert(ids[i], i);
  Counts counts(bench.clients());
  for (uint32_t client = 0; client < bench.clients(); ++client) {
    const auto batches = MakeBatches(bench, client);
    for (size_t b = 0; b < kNumBatches; ++b) {
      counts[client][b].resize(ids.size());
      for (const uint64_t id : batches[b]) {
        if (const uint64_t place = places.Find(id); place != ps::RowIndex::kAbsent)
          ++counts[client][b][place];
      }
    }
  }
  return counts;
}

}  // namespace

size_t IdsPerStep(const PullPushCase& bench) {
  return bench.batch() * (HasSamples(bench) ? kSampleIds : 1);
}

double RowBytes(const PullPushCase& bench, size_t num_ids) {
  return static_cast<double>(num_ids *
                             (sizeof(uint64_t) + ps::WireBytes(bench.wire(), bench.dim())));
}

double PooledBytes(const PullPushCase& bench) {
  return static_cast<double>(IdsPerStep(bench) * sizeof(uint64_t) +
                             bench.batch() * (sizeof(uint32_t) + bench.dim() * sizeof(float)));
}

std::vector<std::vector<uint64_t>> MakeBatches(const PullPushCase& bench, uint32_t client) {
  IdSource source(
      bench.rows(),
      bench.ids() == PullPushCase::ZIPF ? IdDistribution::ZIPF : IdDistribution::UNIFORM, client);
  std::vector<std::vector<uint64_t>> batches(kNumBatches);
  for (size_t b = 0; b < kNumBatches; ++b) {
    ps::RowIndex seen(HasSamples(bench) ? 0 : IdsPerStep(bench));
    while (batches[b].size() < IdsPerStep(bench)) {
      const uint64_t id = source.Next(b);
      if (HasSamples(bench) || seen.FindOrInsert(id, 0).second) batches[b].push_back(id);
    }
  }
  return batches;
}

std::vector<float> GradientPattern(uint32_t dim) {
  std::vector<float> pattern(dim + 3);
  for (size_t i = 0; i < pattern.size(); ++i) pattern[i] = static_cast<float>(1 + i % 4);
  return pattern;
}

std::vector<float> ExpectedRows(const PullPushCase& bench, absl::Span<const uint64_t> ids,
                                uint64_t num_steps) {
  const uint32_t dim = bench.dim();
  const std::vector<float> pattern = GradientPattern(dim);
  std::vector<float> rows;
  for (const uint64_t id : ids) {
    for (uint32_t column = 0; column < dim; ++column) rows.push_back(FirstWeight(id, column));
  }
  if (bench.mode() == PullPushCase::PULL) return rows;
  const Counts counts = CountOccurrences(bench, ids);
  // Every place in a bag counts.
  const uint32_t most = bench.mode() == PullPushCase::POOLED ? ~uint32_t{0} : kMostCounted;
  for (size_t i = 0; i < ids.size(); ++i) {
    float* row = rows.data() + i * dim;
    for (uint64_t step = 0; step < num_steps; ++step) {
      uint32_t count = 0;
      for (const auto& of_client : counts)
        count += std::min(of_client[step % kNumBatches][i], most);
      if (count == 0) continue;
      for (uint32_t column = 0; column < dim; ++column) {
        const uint64_t first = bench.mode() == PullPushCase::POOLED ? 0 : ids[i] % 4;
        const float size = static_cast<float>(count) * pattern[first + column];
        row[column] -= bench.mode() == PullPushCase::PULL_PUSH ? std::copysign(size, row[column])
                                                               : PushSign(step) * size;
      }
    }
  }
  return rows;
}

}  // namespace tandem::bench
