#include "trainer/autograd/parameter_slice.h"

#include <utility>

#include "kernels/base/check.h"

namespace tandem {

ParameterSlice::ParameterSlice(const Shape& logical, int dim, std::vector<IndexRange> kept)
    : logical_(logical), local_(logical), kept_(std::move(kept)) {
  TANDEM_CHECK(dim >= 0 && dim < logical.num_dims() && !kept_.empty());
  int64_t size = 0, last = 0;
  for (const IndexRange& range : kept_) {
    TANDEM_CHECK(last <= range.begin && range.begin < range.end && range.end <= logical[dim])
        << "[" << range.begin << ", " << range.end << ") of " << logical[dim];
    local_begin_.push_back(size);
    size += range.size();
    last = range.end;
  }
  local_[dim] = size;
  for (int d = dim + 1; d < logical.num_dims(); ++d) inner_ *= logical[d];
  local_block_ = size * inner_;
  logical_block_ = logical[dim] * inner_;
}

}  // namespace tandem
