// The toolkit's header of this name is a part of cuda_runtime.h; here it is the same.
#pragma once

#include "tests/emulator/cuda_runtime.h"
