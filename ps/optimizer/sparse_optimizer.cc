#include "ps/optimizer/sparse_optimizer.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "ps/optimizer/adagrad.h"
#include "ps/optimizer/adam.h"
#include "ps/optimizer/rowwise_adagrad.h"
#include "ps/optimizer/sgd.h"

namespace tandem::ps {
namespace {

absl::Status Wrong(const TableSpec& spec, const char* field, double value, const char* allowed) {
  return absl::InvalidArgumentError(
      absl::StrCat("table ", spec.name(), ": ", field, " is ", value, ", must be ", allowed));
}

}  // namespace

absl::Status CheckOptimizer(const TableSpec& spec) {
  const bool adam = spec.optimizer() == SPARSE_ADAM;
  const bool adagrad = spec.optimizer() == SPARSE_ADAGRAD || spec.optimizer() == SPARSE_ROWWISE_ADAGRAD;
  if (!adam && !adagrad && spec.optimizer() != SPARSE_SGD) {
    return absl::InvalidArgumentError(
        absl::StrCat("table ", spec.name(), ": unknown sparse optimizer ", static_cast<int>(spec.optimizer())));
  }
  // Written so that a NaN fails too.
  if ((adam || adagrad) && !(spec.epsilon() > 0 && std::isfinite(spec.epsilon()))) {
    return Wrong(spec, "epsilon", spec.epsilon(), "> 0");
  }
  if (adam && !(spec.beta1() >= 0 && spec.beta1() < 1)) return Wrong(spec, "beta1", spec.beta1(), "in [0, 1)");
  if (adam && !(spec.beta2() >= 0 && spec.beta2() < 1)) return Wrong(spec, "beta2", spec.beta2(), "in [0, 1)");
  if (adagrad && !(spec.initial_accumulator() >= 0 && std::isfinite(spec.initial_accumulator()))) {
    return Wrong(spec, "initial_accumulator", spec.initial_accumulator(), ">= 0");
  }
  return absl::OkStatus();
}

std::unique_ptr<SparseOptimizer> MakeSparseOptimizer(const TableSpec& spec) {
  TANDEM_CHECK(CheckOptimizer(spec).ok()) << CheckOptimizer(spec).ToString();
  switch (spec.optimizer()) {
    case SPARSE_ADAGRAD: return std::make_unique<SparseAdagrad>(spec.epsilon(), spec.initial_accumulator());
    case SPARSE_ROWWISE_ADAGRAD:
      return std::make_unique<SparseRowwiseAdagrad>(spec.epsilon(), spec.initial_accumulator());
    case SPARSE_ADAM: return std::make_unique<SparseAdam>(spec.beta1(), spec.beta2(), spec.epsilon());
    default: return std::make_unique<SparseSgd>();
  }
}

}  // namespace tandem::ps
