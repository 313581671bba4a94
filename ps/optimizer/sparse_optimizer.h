// The rule that turns a row's summed gradient into new weights. State lives in the row's slots, never here, so a row can
// be saved or moved with everything it needs. The formulas are those of kernels/optimizer.h, the same that dense
// parameters use (but row-wise Adagrad's, which they have not): a table trained here equals a dense parameter trained there, row by row, as long as every row gets a
// gradient in every step (rows without one are left alone, "lazy").
// Thread rule: stateless after construction; any thread, different rows.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "proto/embedding.pb.h"

namespace tandem::ps {

class SparseOptimizer {
 public:
  virtual ~SparseOptimizer() = default;
  // f32 numbers of state that follow a row's weights: whole runs of `dim`, or fewer.
  virtual size_t num_slot_values(uint32_t dim) const = 0;
  // Fills the slots of a new row.
  virtual void Init(float* slots, uint32_t dim) const = 0;
  // One update of weights [dim] and slots. `gradient` [dim] is the sum over all pushes and is multiplied by `scale` first.
  // `step` is the job's global step, from 1.
  virtual void Apply(float* weights, float* slots, const float* gradient, uint32_t dim, uint64_t step, double learning_rate,
                     float scale) const = 0;
};

// InvalidArgument, naming the table and the field, unless the optimizer and its numbers make sense.
absl::Status CheckOptimizer(const TableSpec& spec);
// REQUIRES: CheckOptimizer(spec).ok().
std::unique_ptr<SparseOptimizer> MakeSparseOptimizer(const TableSpec& spec);

}  // namespace tandem::ps
