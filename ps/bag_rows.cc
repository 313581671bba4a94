#include "ps/bag_rows.h"

#include <cstring>

#include "absl/container/flat_hash_map.h"

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
  DistinctIds distinct;
  absl::flat_hash_map<uint64_t, uint32_t> places;  // its hash is seeded: nobody can choose ids that collide
  places.reserve(count);
  distinct.place.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    uint64_t id;
    std::memcpy(&id, static_cast<const char*>(ids) + i * sizeof id, sizeof id);
    const auto [found, added] = places.emplace(id, static_cast<uint32_t>(distinct.ids.size()));
    if (added) distinct.ids.push_back(id);
    distinct.place.push_back(found->second);
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

void AddGradients(const BagPart& part, const void* of_bags, float* gradients) {
  std::vector<float> of_bag(part.dim);
  const char* next = static_cast<const char*>(of_bags);
  size_t i = 0;
  for (const uint32_t count : part.counts) {
    std::memcpy(of_bag.data(), next, part.dim * sizeof(float));
    next += part.dim * sizeof(float);
    for (const size_t end = i + count; i < end; ++i) {
      const float weight = WeightAt(part.weights, i);
      float* row = gradients + size_t{part.place[i]} * part.dim;
      for (size_t column = 0; column < part.dim; ++column) row[column] += weight * of_bag[column];
    }
  }
}

}  // namespace tandem::ps
