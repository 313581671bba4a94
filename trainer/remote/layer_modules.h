// The layers that a worker hosts by name. Each has these arguments, beside `seed` and `dtype`, and
// these inputs and outputs:
//   Linear        in= out= [bias=1]                     x [..., in] -> [..., out]
//   MLP           sizes=16,32,1 [activation=relu|gelu]  x [..., 16] -> [..., 1]; linear last layer
//   Embedding     rows= dim= [stddev=1]                 index i64 [R] -> [R, dim]
//   EmbeddingBag  rows= dim= [stddev=1] [pooling=sum|mean|sqrtn]
//                 index i64 [N], offsets i64 [B + 1], weights [N] if any -> [B, dim]
//   Parameter     shape=3,4 [stddev=1]                  -> the parameter
// Linear and MLP are initialised uniformly within 1 / sqrt(in).
// Thread rule: that of ModuleRegistry.
#pragma once

#include "trainer/remote/module.h"

namespace tandem::remote {

void AddLayers(ModuleRegistry& registry);

}  // namespace tandem::remote
