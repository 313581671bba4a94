#include "trainer/nn/tensor_parallel.h"

#include <utility>

namespace tandem::nn {

ParameterPart CutPart(const Shape& shape, int dim, std::vector<IndexRange> kept,
                      const TensorParallel* tp, int holders) {
  if (tp == nullptr) return shape;
  return {ParameterSlice(shape, dim, std::move(kept)),
          {.holders = holders, .partial_over_tp = holders > 1}};
}

ParameterPart StreamPart(const Shape& shape, const TensorParallel* tp) {
  if (tp == nullptr) return shape;
  return {ParameterSlice(shape), {.holders = tp->size(), .partial_over_tp = tp->cuts_rows()}};
}

ParameterPart EqualPart(const Shape& shape, const TensorParallel* tp) {
  if (tp == nullptr) return shape;
  return {ParameterSlice(shape), {.holders = tp->size()}};
}

}  // namespace tandem::nn
