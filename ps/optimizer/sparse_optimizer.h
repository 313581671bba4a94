// The rule that turns a row's summed gradient into new weights. State lives in the row's slots,
// never in the rule, so a row can be saved or moved with its state. A rule that dense parameters
// have too uses the formula of kernels/optimizer.h. So a table equals a dense parameter, row by
// row, if every row gets a gradient in every step. LazyCatchUp handles rows without a gradient; a
// rule only says what a gradient of zero would change.
// Thread rule: stateless after construction; any thread, different rows.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace tandem {
enum SparseOptimizer : int;  // proto/embedding.pb.h
class TableSpec;             // proto/embedding.pb.h
}  // namespace tandem

namespace tandem::ps {

// One row to update.
struct RowUpdate {
  float* weights;  // [dim]
  float* slots;
  const float* gradient;  // [dim]: the sum over all pushes
  float scale;            // multiplies the gradient first
};

class SparseOptimizer {
 public:
  virtual ~SparseOptimizer() = default;
  // Number of f32 state values behind a row's weights: whole runs of `dim`, then fewer than `dim`.
  virtual size_t num_slot_values(uint32_t dim) const = 0;
  // Fills the slots of a new row.
  virtual void Init(float* slots, uint32_t dim) const = 0;
  // Updates each row once. `step` is the job's global step, from 1.
  virtual void ApplyRows(absl::Span<const RowUpdate> rows, uint32_t dim, uint64_t step,
                         double learning_rate) const = 0;
  // Updates one row.
  void Apply(float* weights, float* slots, const float* gradient, uint32_t dim, uint64_t step,
             double learning_rate, float scale) const {
    const RowUpdate row{weights, slots, gradient, scale};
    ApplyRows({&row, 1}, dim, step, learning_rate);
  }

  // The three functions below tell what an update with a gradient of zero changes. The update
  // multiplies run `run` of dim slots, counted from 0, by slot_fading, once, rounded to f32.
  virtual float slot_fading(size_t /*run*/) const { return 1; }
  // The update multiplies weights by 1 - learning rate * weight_decay.
  virtual double weight_decay() const { return 0; }
  // True if no weight changes otherwise, at any step and at rates up to `learning_rate`. False may
  // mean that the rule cannot tell.
  // REQUIRES: weight_decay() == 0.
  virtual bool AtRest(const float* /*weights*/, const float* /*slots*/, uint32_t /*dim*/,
                      double /*learning_rate*/) const {
    return true;
  }

  // True if the rule needs Shown calls.
  virtual bool remembers_shown() const { return false; }
  // Tells that these weights [dim] were pulled for a training step, or are a new row's first
  // weights.
  virtual void Shown(const float* /*weights*/, float* /*slots*/, uint32_t /*dim*/) const {}
};

// The optimizer's name in a job: "ROWWISE_ADAGRAD".
std::string NameOf(tandem::SparseOptimizer optimizer);
// InvalidArgument, naming the table and the field, unless the optimizer, its numbers and its mode
// make sense.
absl::Status CheckOptimizer(const TableSpec& spec);
// REQUIRES: CheckOptimizer(spec).ok().
std::unique_ptr<SparseOptimizer> MakeSparseOptimizer(const TableSpec& spec);

}  // namespace tandem::ps
