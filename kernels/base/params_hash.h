// params_hash: the sum modulo 2^128 over all scalars of a mix of (owner, slot, element index,
// stored bits). The sum is commutative: every process sums the scalars that it owns and the master
// adds the sums. So equal parameters give equal hashes under any layout.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/numeric/int128.h"
#include "kernels/base/random.h"

namespace tandem {

// The owners of a dense parameter's scalars and of a table row's scalars.
constexpr uint64_t DenseOwner(std::string_view parameter_name) {
  return StableHash(parameter_name);
}
constexpr uint64_t RowOwner(std::string_view table_name, uint64_t id) {
  return Fmix64(StableHash(table_name) ^ Fmix64(id));
}

// `slot` is 0 for weights and 1, 2, ... for optimizer slots in their stored order. `bits` is the
// stored bit pattern of the scalar.
constexpr absl::uint128 HashScalar(uint64_t owner, uint32_t slot, uint64_t index, uint64_t bits) {
  const uint64_t place = Fmix64(owner + Fmix64((uint64_t{slot} << 56) ^ index));
  const uint64_t low = Fmix64(place ^ Fmix64(bits));
  return absl::MakeUint128(Fmix64(low + 0x9e3779b97f4a7c15ULL), low);
}

}  // namespace tandem
