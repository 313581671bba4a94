// No checkpoint holds a number that is not finite: the writer saves none, and the reader takes none.
// Thread rule: pure functions.
#pragma once

#include "trainer/tensor/tensor.h"

namespace tandem::checkpoint {

// Whether an F32 or F64 tensor in the host's memory has neither a NaN nor an infinity.
bool IsFinite(const Tensor& tensor);

}  // namespace tandem::checkpoint
