// Stand-ins for a build without the CUDA toolkit: a forgotten one is a link error.
#include "kernels/base/device.h"

namespace tandem {

CudaInfo QueryCuda() { return {}; }

}  // namespace tandem
