// How the ranks of a tensor-parallel group share one layer. The first product of a block is cut by
// columns and the second by rows, so that a block needs one sum over ranks in each direction
// (Shoeybi et al. 2019). Layers know no process group; parallel/tensor has one.
// Thread rule: that of the layers.
#pragma once

#include <cstdint>

#include "trainer/autograd/parameter_slice.h"
#include "trainer/autograd/variable.h"

namespace tandem::nn {

class TensorParallel {
 public:
  virtual ~TensorParallel() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // x is equal on all ranks and enters layers that are cut by columns. Its gradient is the sum of
  // all ranks' gradients.
  virtual Variable Enter(Context& context, const Variable& x) const = 0;
  // The sum of what the ranks' layers, cut by rows, have computed. Equal on all ranks, like its
  // gradient.
  virtual Variable Leave(Context& context, const Variable& partial) const = 0;

  // This rank's part of `count` columns, rows, heads or classes.
  IndexRange PartOf(int64_t count) const {
    return {count * rank() / size(), count * (rank() + 1) / size()};
  }
};

}  // namespace tandem::nn
