#include "trainer/tasks/transformer_rules.h"

#include "absl/strings/str_cat.h"
#include "proto/job.pb.h"

namespace tandem::tasks {

void CheckHeads(const HeadsRule& rule, Limits* limits) {
  const int heads = rule.heads == 0 ? rule.default_heads : rule.heads;
  if (rule.dim <= 0 || heads <= 0 || rule.dim % heads == 0) return;
  // The default head count cannot be at fault for a dim that the user chose.
  limits->Fail(rule.heads == 0 ? rule.dim_path : rule.path + "heads",
               absl::StrCat(rule.path, "heads is ", heads, " with ", rule.dim_path, " ", rule.dim,
                            "; allowed: a divisor of the dim"));
}

void CheckCut(int tp, const CutRule& rule, Limits* limits) {
  if (tp <= 1) return;
  if (rule.heads > 0 && rule.heads % tp != 0) {
    limits->Refuse("parallel.tp", tp,
                   absl::StrCat("a divisor of ", rule.path, "heads, ", rule.heads));
  } else if (rule.kv_heads > 0 && rule.kv_heads % tp != 0 && tp % rule.kv_heads != 0) {
    limits->Refuse(
        "parallel.tp", tp,
        absl::StrCat("a divisor or a multiple of ", rule.path, "kv_heads, ", rule.kv_heads));
  } else if (rule.ffn_dim > 0 && rule.ffn_dim % tp != 0) {
    limits->Refuse("parallel.tp", tp,
                   absl::StrCat("a divisor of ", rule.path, "ffn_dim, ", rule.ffn_dim));
  }
}

kernels::Activation ActivationOf(ActivationType type) {
  switch (type) {
    case RELU:
      return kernels::Activation::RELU;
    case SILU:
      return kernels::Activation::SILU;
    case GELU_TANH:
      return kernels::Activation::GELU_TANH;
    default:
      return kernels::Activation::GELU;
  }
}

}  // namespace tandem::tasks
