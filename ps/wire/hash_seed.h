// Random seeds of hash tables: who knew them could choose ids that all fall together, and make a server search and grow without end.
// Nothing that anybody sees may depend on them. Thread rule: any thread.
#pragma once

#include <cstdint>
#include <random>

namespace tandem::ps {

inline uint64_t HashSeed() {
  std::random_device random;
  return uint64_t{random()} << 32 | random();
}

}  // namespace tandem::ps
