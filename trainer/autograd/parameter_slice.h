// The part of a parameter that a rank holds. The parameter is a logical array; the part keeps some
// ranges of indices along one dimension, and everything along the others. So the columns of a fused
// [queries | keys | values] matrix that belong to some heads are three ranges. Initial values,
// hashes and files speak of logical elements, whatever the cut.
// Thread rule: a value.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/base/array_view.h"

namespace tandem {

struct IndexRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};

class ParameterSlice {
 public:
  ParameterSlice() = default;
  // The whole array.
  explicit ParameterSlice(const Shape& logical) : logical_(logical), local_(logical) {}
  // The indices `kept` of dimension `dim`, in ascending order.
  ParameterSlice(const Shape& logical, int dim, std::vector<IndexRange> kept);

  const Shape& logical() const { return logical_; }
  const Shape& local() const { return local_; }  // the shape of the rank's array
  bool whole() const { return kept_.empty(); }

  // Cuts the local elements [begin, end) into runs that are also contiguous in the logical array.
  // Calls visit(local element, logical element, number of elements) for each run, in order.
  template <class Visit>
  void ForEachRun(int64_t begin, int64_t end, const Visit& visit) const {
    if (whole()) {
      if (begin < end) visit(begin, begin, end - begin);
      return;
    }
    while (begin < end) {
      const int64_t block = begin / local_block_, within = begin % local_block_;
      // The range whose elements include `within`.
      size_t r = 0;
      while (r + 1 < kept_.size() && local_begin_[r + 1] * inner_ <= within) ++r;
      const int64_t past = within - local_begin_[r] * inner_,
                    count = std::min(end - begin, kept_[r].size() * inner_ - past);
      visit(begin, block * logical_block_ + kept_[r].begin * inner_ + past, count);
      begin += count;
    }
  }

 private:
  Shape logical_, local_;
  std::vector<IndexRange> kept_;                 // empty: the whole array
  std::vector<int64_t> local_begin_;             // local index at which each range begins
  int64_t inner_ = 1;                            // elements of one index of the cut dimension
  int64_t local_block_ = 1, logical_block_ = 1;  // elements of all its indices
};

}  // namespace tandem
