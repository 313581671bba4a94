// Random seeds of hash tables. Somebody who knew a seed could choose ids that all collide, and make
// a server search and grow without end. No visible result may depend on a seed.
// Thread rule: any thread.
#pragma once

#include <cstdint>
#include <random>

namespace tandem::ps {

inline uint64_t HashSeed() {
  std::random_device random;
  return uint64_t{random()} << 32 | random();
}

}  // namespace tandem::ps
