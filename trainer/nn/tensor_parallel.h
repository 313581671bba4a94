// How the ranks of a tensor-parallel group share one layer. The first product of a block is cut by
// columns and the second by rows, so that a block needs one sum over ranks in each direction
// (Shoeybi et al. 2019). With sequence parallelism (Korthikanti et al. 2022) the rows between cut
// layers are cut too: of T rows each rank has T / size, rounded up, and the last ones are padding
// that counts for nothing. Layers know no process group; parallel/tensor has one.
// Thread rule: that of the layers.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/autograd/parameter.h"

namespace tandem::nn {

class TensorParallel {
 public:
  virtual ~TensorParallel() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // True with sequence parallelism. False: every rank has all rows everywhere.
  virtual bool cuts_rows() const = 0;

  // Rows of the residual stream enter layers that are cut by columns -> all `num_rows` rows. The
  // gradient of `x` is the sum of all ranks' gradients.
  virtual Variable Enter(Context& context, const Variable& x, int64_t num_rows) const = 0;
  // The sum of what the ranks' layers, cut by rows, have computed, for the residual stream.
  virtual Variable Leave(Context& context, const Variable& partial) const = 0;
  // All rows, equal on all ranks -> the rows that the stream has here. The gradient of `x` is equal
  // on all ranks.
  virtual Variable Split(Context& context, const Variable& x) const = 0;
  // The inverse. REQUIRES: all ranks use the result alike.
  virtual Variable Join(Context& context, const Variable& x, int64_t num_rows) const = 0;
  // Takes numbers i64 [T], one for each row; returns those of the rows here, 0 for padding.
  virtual Tensor NumbersHere(Context& context, const Tensor& numbers) const = 0;

  // This rank's part of `count` columns, rows, heads or classes.
  IndexRange PartOf(int64_t count) const { return PartOf(count, rank()); }
  IndexRange PartOf(int64_t count, int of_rank) const {
    return {count * of_rank / size(), count * (of_rank + 1) / size()};
  }
};

// The functions below take a null `tp` for a whole model.

inline IndexRange PartOf(int64_t count, const TensorParallel* tp) {
  return tp == nullptr ? IndexRange{0, count} : tp->PartOf(count);
}

// The indices `kept` of dimension `dim`. `holders` neighbouring ranks hold the same ones, each with
// the gradient of its own heads.
ParameterPart CutPart(const Shape& shape, int dim, std::vector<IndexRange> kept,
                      const TensorParallel* tp, int holders = 1);
// A whole parameter that works on the rows of the residual stream.
ParameterPart StreamPart(const Shape& shape, const TensorParallel* tp);
// A whole parameter that works alike on every rank, outside the residual stream.
ParameterPart EqualPart(const Shape& shape, const TensorParallel* tp);

}  // namespace tandem::nn
