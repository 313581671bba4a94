#include "trainer/checkpoint/finite.h"

#include <algorithm>
#include <cmath>

namespace tandem::checkpoint {
namespace {

// Has no branch, so that the compiler vectorises the loop.
template <class T>
bool AllFinite(const T* values, int64_t count) {
  bool finite = true;
  for (int64_t i = 0; i < count; ++i) finite &= std::isfinite(values[i]);
  return finite;
}

}  // namespace

bool IsFinite(const Tensor& tensor) {
  return tensor.dtype() == DType::F64 ? AllFinite(tensor.data<double>(), tensor.num_elements())
                                      : AllFinite(tensor.data<float>(), tensor.num_elements());
}

}  // namespace tandem::checkpoint
