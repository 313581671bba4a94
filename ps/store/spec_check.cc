#include "ps/store/spec_check.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "proto/embedding.pb.h"
#include "ps/optimizer/sparse_optimizer.h"

namespace tandem::ps {
namespace {

constexpr uint32_t kMaxDim = 65536;

}  // namespace

absl::Status CheckTableSpec(const TableSpec& spec) {
  if (spec.name().empty()) return absl::InvalidArgumentError("a table needs a name");
  const auto wrong = [&](auto... text) {
    return absl::InvalidArgumentError(absl::StrCat("table ", spec.name(), ": ", text...));
  };
  if (spec.number() == 0) return wrong("number is 0, must be 1 or more");
  if (spec.dim() == 0 || spec.dim() > kMaxDim)
    return wrong("dim is ", spec.dim(), ", must be 1 to ", kMaxDim);
  if (!(spec.init_stddev() >= 0 && std::isfinite(spec.init_stddev()))) {
    return wrong("init_stddev is ", spec.init_stddev(), ", must be >= 0");
  }
  if (!RowStorage_IsValid(spec.storage()))
    return wrong("unknown storage ", static_cast<int>(spec.storage()));
  if (spec.dense() && spec.storage() != STORED_F32)
    return wrong("storage of a dense table must be STORED_F32");
  if (!TableSpec::NonFinite_IsValid(spec.non_finite())) {
    return wrong("unknown policy non_finite ", static_cast<int>(spec.non_finite()));
  }
  if (!(spec.max_row_norm() >= 0 && std::isfinite(spec.max_row_norm()))) {
    return wrong("max_row_norm is ", spec.max_row_norm(), ", must be >= 0");
  }
  return CheckOptimizer(spec);
}

absl::Status CheckRowWidth(const TableSpec& spec, size_t width) {
  const size_t all = spec.dim() + MakeSparseOptimizer(spec)->num_slot_values(spec.dim());
  if (!spec.dense()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "table ", spec.name(), " is not dense: its rows are neither assigned nor read"));
  }
  if (width == spec.dim() || width == all) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("table ", spec.name(), ": rows of ", width,
                                                 " numbers, must have ", spec.dim(),
                                                 ", or with all slots ", all));
}

}  // namespace tandem::ps
