// All-reduces of f32 by Gloo, beside which ours are measured. Only where libgloo-dev is installed.
// Thread rule: each rank on a thread of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tandem::bench {

// A rank of a group over TCP on this machine.
class GlooRank {
 public:
  virtual ~GlooRank() = default;
  // The names of Gloo's algorithms.
  virtual std::vector<std::string> Algorithms() const = 0;
  // Prepares an algorithm for an array, which outlives its use. Collective.
  virtual void Use(const std::string& algorithm, float* values, int64_t count) = 0;
  // Sums the array over ranks, in place. Collective.
  virtual void AllReduce() = 0;
};

// True if Gloo is linked.
bool HasGloo();
// The ranks' common memory, in which they find each other.
std::shared_ptr<void> NewGlooStore();
// Collective over `size` threads.
std::unique_ptr<GlooRank> NewGlooRank(const std::shared_ptr<void>& store, int rank, int size);

}  // namespace tandem::bench
