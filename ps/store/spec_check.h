// Checks of what a table is asked to be, before any memory is allocated for the table.
// Thread rule: pure functions.
#pragma once

#include <cstddef>

#include "absl/status/status.h"

namespace tandem {
class TableSpec;  // proto/embedding.pb.h
}

namespace tandem::ps {

// InvalidArgument, naming the field, if no table can be made of the spec.
absl::Status CheckTableSpec(const TableSpec& spec);
// InvalidArgument unless rows of `width` numbers can be assigned and read
// (ps/client/table_admin.h).
absl::Status CheckRowWidth(const TableSpec& spec, size_t width);

}  // namespace tandem::ps
