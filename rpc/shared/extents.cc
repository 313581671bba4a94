#include "rpc/shared/extents.h"

#include <algorithm>
#include <iterator>

#include "kernels/base/check.h"

namespace tandem::rpc {

Extents::Extents(size_t num_bytes) : free_{{0, num_bytes}} {
  TANDEM_CHECK_GT(num_bytes, 0u);
  TANDEM_CHECK_EQ(num_bytes % kUnit, 0u);
}

std::optional<Extent> Extents::Take(size_t num_bytes) {
  const size_t wanted = (num_bytes + kUnit - 1) / kUnit * kUnit;
  for (auto piece = free_.begin(); piece != free_.end(); ++piece) {
    if (piece->second < wanted) continue;
    const Extent taken{piece->first, wanted};
    const size_t left = piece->second - wanted;
    const auto next = free_.erase(piece);
    if (left > 0) free_.emplace_hint(next, taken.offset + wanted, left);
    taken_bytes_ += wanted;
    return taken;
  }
  return std::nullopt;
}

std::optional<Extent> Extents::TakeUpTo(size_t num_bytes) {
  size_t largest = 0;
  for (const auto& [offset, size] : free_) largest = std::max(largest, size);
  if (largest == 0) return std::nullopt;
  return Take(std::min(num_bytes, largest));
}

void Extents::Give(const Extent& extent) {
  const auto [piece, is_new] = free_.emplace(extent.offset, extent.num_bytes);
  TANDEM_CHECK(is_new) << "memory was given back twice";
  taken_bytes_ -= extent.num_bytes;
  const auto next = std::next(piece);
  if (next != free_.end() && piece->first + piece->second == next->first) {
    piece->second += next->second;
    free_.erase(next);
  }
  if (piece == free_.begin()) return;
  const auto before = std::prev(piece);
  if (before->first + before->second == piece->first) {
    before->second += piece->second;
    free_.erase(piece);
  }
}

}  // namespace tandem::rpc
