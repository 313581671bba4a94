// Loops over updated rows. The loops choose the widest vectors once for all rows of a call.
// Choosing once for each row would take as long as a short row's update.
// Thread rule: functions of their arguments.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/cpu/vector/vectorise.h"
#include "ps/optimizer/sparse_optimizer.h"

namespace tandem::ps {

// Calls update(row) for each row.
template <class Update>
void ForEachRow(absl::Span<const RowUpdate> rows, const Update& update) {
  kernels::Vectorised([=] {
    // Uses a copy of the row: the compiler knows that no store to weights or slots changes the
    // copy.
    for (const RowUpdate& each : rows) {
      const RowUpdate row = each;
      update(row);
    }
  });
}

// Sets each row's weight i to column(row, i, scaled gradient). `column` may change slots that
// belong to column i.
template <class Column>
void ForEachColumn(absl::Span<const RowUpdate> rows, uint32_t dim, const Column& column) {
  ForEachRow(rows, [=](const RowUpdate& row) {
#pragma GCC ivdep
    for (uint32_t i = 0; i < dim; ++i) row.weights[i] = column(row, i, row.gradient[i] * row.scale);
  });
}

}  // namespace tandem::ps
