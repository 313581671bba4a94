// Limits and options that Transformers of several kinds share.
// Thread rule: free functions.
#pragma once

#include <string>

#include "kernels/elementwise.h"
#include "trainer/job/limits.h"

namespace tandem {
enum ActivationType : int;  // proto/job.pb.h
}

namespace tandem::tasks {

// Refuses heads that do not divide the dim. `path` is the path of the model with a trailing dot.
// `heads` is 0 if the job gives none. `dim_path` is the field that holds `dim`.
struct HeadsRule {
  std::string path;
  int heads = 0, default_heads = 1;
  std::string dim_path;
  int dim = 0;
};
void CheckHeads(const HeadsRule& rule, Limits* limits);

// Refuses tensor-parallel ranks that do not have equally many heads, or as much of the FFN's hidden
// layer, as every other. `kv_heads` 0: as many as heads.
struct CutRule {
  std::string path;  // of the model, with a trailing dot
  int heads = 0, kv_heads = 0, ffn_dim = 0;
};
void CheckCut(int tp, const CutRule& rule, Limits* limits);

kernels::Activation ActivationOf(ActivationType type);

}  // namespace tandem::tasks
