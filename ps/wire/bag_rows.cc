#include "ps/wire/bag_rows.h"

#include <cstring>

#include "ps/wire/hash_seed.h"
#include "ps/wire/row_index.h"

namespace tandem::ps {

namespace {

float WeightAt(const void* weights, size_t i) {
  if (weights == nullptr) return 1;
  float weight;
  std::memcpy(&weight, static_cast<const char*>(weights) + i * sizeof(float), sizeof weight);
  return weight;
}

}  // namespace

DistinctIds FindDistinct(const void* ids, size_t count) {
  constexpr size_t kLookAhead = 16;
  const auto id_at = [ids](size_t i) {
    uint64_t id;
    std::memcpy(&id, static_cast<const char*>(ids) + i * sizeof id, sizeof id);
    return id;
  };
  DistinctIds distinct;
  RowIndex places(count, HashSeed() | 1);
  distinct.ids.reserve(count);
  distinct.place.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    if (i + kLookAhead < count) places.Prefetch(id_at(i + kLookAhead));
    const auto [place, added] = places.FindOrInsert(id_at(i), distinct.ids.size());
    if (added) distinct.ids.push_back(id_at(i));
    distinct.place.push_back(static_cast<uint32_t>(place));
  }
  return distinct;
}

void AddRows(const BagPart& part, const float* rows, float* pooled) {
  size_t i = 0;
  for (const uint32_t count : part.counts) {
    for (const size_t end = i + count; i < end; ++i) {
      const float weight = WeightAt(part.weights, i);
      const float* row = rows + size_t{part.place[i]} * part.dim;
      for (size_t column = 0; column < part.dim; ++column) pooled[column] += weight * row[column];
    }
    pooled += part.dim;
  }
}

void SumGradients(const BagPart& part, const void* of_bags, float* gradients) {
  std::vector<float> of_bag(part.dim);
  const char* next = static_cast<const char*>(of_bags);
  size_t i = 0, num_seen = 0;
  for (const uint32_t count : part.counts) {
    std::memcpy(of_bag.data(), next, part.dim * sizeof(float));
    next += part.dim * sizeof(float);
    for (const size_t end = i + count; i < end; ++i) {
      const float weight = WeightAt(part.weights, i);
      float* row = gradients + size_t{part.place[i]} * part.dim;
      const bool first = part.place[i] == num_seen;  // the gradient of this id is not written yet
      num_seen += first;
      if (first) {
        for (size_t column = 0; column < part.dim; ++column) row[column] = weight * of_bag[column];
      } else {
        for (size_t column = 0; column < part.dim; ++column) row[column] += weight * of_bag[column];
      }
    }
  }
}

}  // namespace tandem::ps
