#include "ps/optimizer/sparse_optimizer.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "kernels/base/check.h"
#include "proto/embedding.pb.h"
#include "ps/optimizer/adadelta.h"
#include "ps/optimizer/adagrad.h"
#include "ps/optimizer/adam.h"
#include "ps/optimizer/amsgrad.h"
#include "ps/optimizer/delay_compensated_sgd.h"
#include "ps/optimizer/ftrl.h"
#include "ps/optimizer/momentum.h"
#include "ps/optimizer/rmsprop.h"
#include "ps/optimizer/rowwise_adagrad.h"
#include "ps/optimizer/sgd.h"

namespace tandem::ps {
namespace {

template <class Value>
absl::Status Wrong(const TableSpec& spec, const char* field, const Value& value,
                   const char* allowed) {
  return absl::InvalidArgumentError(
      absl::StrCat("table ", spec.name(), ": ", field, " is ", value, ", must be ", allowed));
}

// These comparisons are false for a NaN.
bool Positive(float value) { return value > 0 && std::isfinite(value); }
bool NotNegative(float value) { return value >= 0 && std::isfinite(value); }
bool BelowOne(float value) { return value >= 0 && value < 1; }

absl::Status CheckMode(const TableSpec& spec, bool only_lazy) {
  if (!TableSpec::Mode_IsValid(spec.mode()))
    return Wrong(spec, "mode", static_cast<int>(spec.mode()), "a known one");
  if (spec.mode() != TableSpec::LAZY && only_lazy) {
    return Wrong(spec, "mode", TableSpec::Mode_Name(spec.mode()),
                 absl::StrCat("LAZY with ", NameOf(spec.optimizer())).c_str());
  }
  if (spec.mode() == TableSpec::DENSE_EQUIVALENT && spec.storage() == STORED_INT8) {
    return Wrong(spec, "storage", "INT8", "F32 or BF16 with mode DENSE_EQUIVALENT");
  }
  return absl::OkStatus();
}

}  // namespace

std::string NameOf(tandem::SparseOptimizer optimizer) {
  if (!SparseOptimizer_IsValid(optimizer)) return absl::StrCat(static_cast<int>(optimizer));
  return std::string(absl::StripPrefix(SparseOptimizer_Name(optimizer), "SPARSE_"));
}

absl::Status CheckOptimizer(const TableSpec& spec) {
  const auto is = [kind = spec.optimizer()](std::initializer_list<tandem::SparseOptimizer> kinds) {
    return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
  };
  if (!SparseOptimizer_IsValid(spec.optimizer()) || is({SPARSE_OPTIMIZER_UNSPECIFIED})) {
    return absl::InvalidArgumentError(absl::StrCat(
        "table ", spec.name(), ": unknown sparse optimizer ", static_cast<int>(spec.optimizer())));
  }
  const bool adam = is({SPARSE_ADAM, SPARSE_AMSGRAD, SPARSE_ADAMW}),
             ftrl = is({SPARSE_FTRL, SPARSE_GROUP_FTRL});
  const bool adagrad = is({SPARSE_ADAGRAD, SPARSE_ROWWISE_ADAGRAD}),
             rho = is({SPARSE_ADADELTA, SPARSE_RMSPROP});
  if ((adam || adagrad || rho) && !Positive(spec.epsilon()))
    return Wrong(spec, "epsilon", spec.epsilon(), "> 0");
  if (adam && !BelowOne(spec.beta1())) return Wrong(spec, "beta1", spec.beta1(), "in [0, 1)");
  if (adam && !BelowOne(spec.beta2())) return Wrong(spec, "beta2", spec.beta2(), "in [0, 1)");
  if ((adagrad || ftrl) && !NotNegative(spec.initial_accumulator())) {
    return Wrong(spec, "initial_accumulator", spec.initial_accumulator(), ">= 0");
  }
  if (is({SPARSE_MOMENTUM, SPARSE_NESTEROV}) && !BelowOne(spec.momentum())) {
    return Wrong(spec, "momentum", spec.momentum(), "in [0, 1)");
  }
  if (rho && !BelowOne(spec.rho())) return Wrong(spec, "rho", spec.rho(), "in [0, 1)");
  if (ftrl && !Positive(spec.beta())) return Wrong(spec, "beta", spec.beta(), "> 0");
  if (ftrl && !NotNegative(spec.l1())) return Wrong(spec, "l1", spec.l1(), ">= 0");
  if (ftrl && !NotNegative(spec.l2())) return Wrong(spec, "l2", spec.l2(), ">= 0");
  if (ftrl && !NotNegative(spec.group_l1()))
    return Wrong(spec, "group_l1", spec.group_l1(), ">= 0");
  if (is({SPARSE_DC_SGD}) && !NotNegative(spec.delay_compensation())) {
    return Wrong(spec, "delay_compensation", spec.delay_compensation(), ">= 0");
  }
  if (!NotNegative(spec.weight_decay()))
    return Wrong(spec, "weight_decay", spec.weight_decay(), ">= 0");
  if (spec.weight_decay() > 0 && !is({SPARSE_SGD, SPARSE_ADAMW})) {
    return Wrong(spec, "weight_decay", spec.weight_decay(), "0, or the optimizer SGD or ADAMW");
  }
  return CheckMode(spec, /*only_lazy=*/ftrl || is({SPARSE_DC_SGD}));
}

std::unique_ptr<SparseOptimizer> MakeSparseOptimizer(const TableSpec& spec) {
  TANDEM_CHECK(CheckOptimizer(spec).ok()) << CheckOptimizer(spec).ToString();
  const bool grouped = spec.optimizer() == SPARSE_GROUP_FTRL;
  switch (spec.optimizer()) {
    case SPARSE_ADAGRAD:
      return std::make_unique<SparseAdagrad>(spec.epsilon(), spec.initial_accumulator());
    case SPARSE_ROWWISE_ADAGRAD:
      return std::make_unique<SparseRowwiseAdagrad>(spec.epsilon(), spec.initial_accumulator());
    case SPARSE_MOMENTUM:
      return std::make_unique<SparseMomentum>(spec.momentum(), /*nesterov=*/false);
    case SPARSE_NESTEROV:
      return std::make_unique<SparseMomentum>(spec.momentum(), /*nesterov=*/true);
    case SPARSE_ADADELTA:
      return std::make_unique<SparseAdadelta>(spec.rho(), spec.epsilon());
    case SPARSE_RMSPROP:
      return std::make_unique<SparseRmsprop>(spec.rho(), spec.epsilon());
    case SPARSE_ADAM:
    case SPARSE_ADAMW:
      return std::make_unique<SparseAdam>(spec.beta1(), spec.beta2(), spec.epsilon(),
                                          spec.weight_decay());
    case SPARSE_AMSGRAD:
      return std::make_unique<SparseAmsgrad>(spec.beta1(), spec.beta2(), spec.epsilon());
    case SPARSE_FTRL:
    case SPARSE_GROUP_FTRL:
      return std::make_unique<SparseFtrl>(
          FtrlOptions{.beta = spec.beta(),
                      .l1 = spec.l1(),
                      .l2 = spec.l2(),
                      .group_l1 = grouped ? spec.group_l1() : 0,
                      .initial_accumulator = spec.initial_accumulator()});
    case SPARSE_DC_SGD:
      return std::make_unique<SparseDelayCompensatedSgd>(spec.delay_compensation());
    default:
      return std::make_unique<SparseSgd>(spec.weight_decay());
  }
}

}  // namespace tandem::ps
