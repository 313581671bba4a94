// Replaces the toolkit's header of this name with cuda_runtime.h, which contains it.
#pragma once

#include "tests/emulator/cuda_runtime.h"
