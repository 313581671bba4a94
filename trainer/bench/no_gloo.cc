// Stands in for gloo_allreduce.cc where libgloo-dev is not installed.
#include "trainer/bench/gloo_allreduce.h"

namespace tandem::bench {

bool HasGloo() { return false; }
std::shared_ptr<void> NewGlooStore() { return nullptr; }
std::unique_ptr<GlooRank> NewGlooRank(const std::shared_ptr<void>&, int, int) { return nullptr; }

}  // namespace tandem::bench
