// The rule that turns a row's summed gradient into new weights. State lives in the row's slots, never here, so a row can
// be saved or moved with everything it needs. The formulas are those of kernels/optimizer.h, the same that dense
// parameters use: a table trained here equals a dense parameter trained there, row by row, as long as every row gets a
// gradient in every step (rows without one are left alone, "lazy").
// Thread rule: stateless after construction; any thread, different rows.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "proto/embedding.pb.h"
#include "ps/row_layout.h"

namespace tandem::ps {

class SparseOptimizer {
 public:
  virtual ~SparseOptimizer() = default;
  // f32[dim] runs of state that follow a row's weights.
  virtual int num_slots() const = 0;
  // Fills the slots of a new row; leaves its weights alone.
  virtual void Init(const RowView& row) const = 0;
  // One update. `gradient` f32[row.dim] is the sum over all pushes and is multiplied by `scale` first. `step` is the
  // job's global step, from 1.
  virtual void Apply(const RowView& row, const float* gradient, uint64_t step, float learning_rate,
                     float scale) const = 0;
};

// InvalidArgument, naming the table and the field, unless the optimizer and its numbers make sense.
absl::Status CheckOptimizer(const TableSpec& spec);
// REQUIRES: CheckOptimizer(spec).ok().
std::unique_ptr<SparseOptimizer> MakeSparseOptimizer(const TableSpec& spec);

}  // namespace tandem::ps
