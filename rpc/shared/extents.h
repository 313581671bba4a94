// Allocates parts of a memory block that lies elsewhere. First fit: reuses recently used memory
// that is still in the caches, and never touches memory before it is needed.
// Thread rule: one owner.
#pragma once

#include <cstddef>
#include <map>
#include <optional>

namespace tandem::rpc {

struct Extent {
  size_t offset = 0;
  size_t num_bytes = 0;  // a multiple of Extents::kUnit
};

class Extents {
 public:
  static constexpr size_t kUnit = 4096;

  // REQUIRES: num_bytes is a multiple of kUnit.
  explicit Extents(size_t num_bytes);

  // Takes `num_bytes` in one piece.
  // REQUIRES: num_bytes > 0.
  std::optional<Extent> Take(size_t num_bytes);
  // Like Take, but takes the largest free piece if no piece is large enough.
  std::optional<Extent> TakeUpTo(size_t num_bytes);
  // REQUIRES: `extent` was taken and not given back.
  void Give(const Extent& extent);

  size_t taken_bytes() const { return taken_bytes_; }

 private:
  std::map<size_t, size_t> free_;  // bytes by offset; no two free extents touch
  size_t taken_bytes_ = 0;
};

}  // namespace tandem::rpc
