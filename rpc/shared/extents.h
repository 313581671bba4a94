// Who has which part of a block of memory that lies elsewhere. First fit: what was used last, and is still in the caches, is used
// again, and memory that was never needed is never touched. Thread rule: one owner.
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

  // Room for `num_bytes` > 0 in one piece.
  std::optional<Extent> Take(size_t num_bytes);
  // The same or, where no piece is so large, the largest there is.
  std::optional<Extent> TakeUpTo(size_t num_bytes);
  // REQUIRES: it was taken, and not given back.
  void Give(const Extent& extent);

  size_t taken_bytes() const { return taken_bytes_; }

 private:
  std::map<size_t, size_t> free_;  // bytes by offset; no two adjoin
  size_t taken_bytes_ = 0;
};

}  // namespace tandem::rpc
