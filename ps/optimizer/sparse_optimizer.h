// The rule that turns a row's summed gradient into new weights. State lives in the row's slots, never here, so a row can
// be saved or moved with everything it needs. Where dense parameters could have the rule too its formula is that of kernels/optimizer.h:
// a table trained here equals a dense parameter trained there, row by row, as long as every row gets a gradient in every step. What
// becomes of rows without one is LazyCatchUp' business; a rule only says what of it a gradient of zero would change.
// Thread rule: stateless after construction; any thread, different rows.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/embedding.pb.h"

namespace tandem::ps {

// A row that is updated.
struct RowUpdate {
  float* weights;         // [dim]
  float* slots;
  const float* gradient;  // [dim]: the sum over all pushes
  float scale;            // multiplies the gradient first
};

class SparseOptimizer {
 public:
  virtual ~SparseOptimizer() = default;
  // f32 numbers of state that follow a row's weights: whole runs of `dim`, or fewer.
  virtual size_t num_slot_values(uint32_t dim) const = 0;
  // Fills the slots of a new row.
  virtual void Init(float* slots, uint32_t dim) const = 0;
  // One update of each row. `step` is the job's global step, from 1.
  virtual void ApplyRows(absl::Span<const RowUpdate> rows, uint32_t dim, uint64_t step, double learning_rate) const = 0;
  // Of one row.
  void Apply(float* weights, float* slots, const float* gradient, uint32_t dim, uint64_t step, double learning_rate, float scale) const {
    const RowUpdate row{weights, slots, gradient, scale};
    ApplyRows({&row, 1}, dim, step, learning_rate);
  }

  // What an update with a gradient of zero changes:
  // it multiplies run `run` of dim slots, counted from 0, by this, once, rounded to f32;
  virtual float slot_fading(size_t /*run*/) const { return 1; }
  // it multiplies weights by 1 - learning rate * weight_decay;
  virtual double weight_decay() const { return 0; }
  // and no weight moves otherwise, at any step and at rates up to this one: sure, if true. REQUIRES: weight_decay() == 0.
  virtual bool AtRest(const float* /*weights*/, const float* /*slots*/, uint32_t /*dim*/, double /*learning_rate*/) const {
    return true;
  }

  // Whether Shown wants to know of the weights that gradients are computed at.
  virtual bool remembers_shown() const { return false; }
  // Such weights [dim] were pulled, or are a new row's first ones.
  virtual void Shown(const float* /*weights*/, float* /*slots*/, uint32_t /*dim*/) const {}
};

// As a job names it: "ROWWISE_ADAGRAD".
std::string NameOf(tandem::SparseOptimizer optimizer);
// InvalidArgument, naming the table and the field, unless the optimizer, its numbers and its mode make sense.
absl::Status CheckOptimizer(const TableSpec& spec);
// REQUIRES: CheckOptimizer(spec).ok().
std::unique_ptr<SparseOptimizer> MakeSparseOptimizer(const TableSpec& spec);

}  // namespace tandem::ps
