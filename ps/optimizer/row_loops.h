// Loops over rows that are updated, compiled for the widest vectors once for all rows of a call: choosing the copy of a loop for each row
// takes as long as the update of a short one. Thread rule: functions of their arguments.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/cpu/vector/vectorise.h"
#include "ps/optimizer/sparse_optimizer.h"

namespace tandem::ps {

// update(row) of each row.
template <class Update>
void ForEachRow(absl::Span<const RowUpdate> rows, const Update& update) {
  kernels::Vectorised([=] {
    // Copies, which no store to weights or slots can be taken to change.
    for (const RowUpdate& each : rows) {
      const RowUpdate row = each;
      update(row);
    }
  });
}

// Each row's weight i becomes column(row, i, its scaled gradient), which may change slots that belong to column i.
template <class Column>
void ForEachColumn(absl::Span<const RowUpdate> rows, uint32_t dim, const Column& column) {
  ForEachRow(rows, [=](const RowUpdate& row) {
#pragma GCC ivdep
    for (uint32_t i = 0; i < dim; ++i) row.weights[i] = column(row, i, row.gradient[i] * row.scale);
  });
}

}  // namespace tandem::ps
