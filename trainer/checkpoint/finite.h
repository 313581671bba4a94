// No checkpoint holds a number that is not finite: the writer saves none, and the reader accepts
// none.
// Thread rule: pure functions.
#pragma once

#include "trainer/tensor/tensor.h"

namespace tandem::checkpoint {

// True if an F32 or F64 tensor in host memory holds neither a NaN nor an infinity.
bool IsFinite(const Tensor& tensor);

}  // namespace tandem::checkpoint
