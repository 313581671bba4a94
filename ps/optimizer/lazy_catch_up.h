// What the steps in which a row had no gradient do to it, when the row is used again (TableSpec.Mode). CATCH_UP: running means fade and
// weights decay in closed form, whatever else a gradient of zero would do. DENSE_EQUIVALENT: the optimizer's own rule with a gradient
// of zero, step by step, until it provably moves no weight any more; after that running means only fade, multiplication by
// multiplication: the bits of an optimizer that updates all rows in all steps. A row has such steps from its first commit on.
// The learning rates of steps are remembered where they matter, 16 bytes for each time they change, from BeginAfter on.
// Thread rule: one thread at a time; const methods keep nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "ps/optimizer/sparse_optimizer.h"

namespace tandem::ps {

class LazyCatchUp {
 public:
  // `optimizer` outlives this.
  LazyCatchUp(const SparseOptimizer& optimizer, TableSpec::Mode mode, uint32_t dim);

  // Whether missed steps change anything.
  bool matter() const { return matter_; }
  // Whether it makes no difference when, and in how many parts, they are run.
  bool exact() const { return mode_ == TableSpec::DENSE_EQUIVALENT; }
  // Whether rates are remembered: not in a file of rows, so that all rows must be brought up before they are saved.
  bool remembers_rates() const { return remembers_rates_; }

  // The last step that was applied or skipped.
  uint64_t last_step() const { return last_step_; }
  // Of what came up to this step nothing is known any more, and every row has it behind it.
  void BeginAfter(uint64_t step);
  // The step was applied to the rows that had a gradient, or skipped for all. Of several commits of a step the first one counts, and
  // one of a step before the last does not: only whole steps are missed.
  void Add(uint64_t step, double learning_rate, bool skipped);

  // CATCH_UP: brings weights [dim] and slots of a row, that stand after step `from`, to where they stand after `to`.
  void CatchUp(float* weights, float* slots, uint64_t from, uint64_t to) const;
  // What CatchUp multiplies weights by.
  float WeightDecay(uint64_t from, uint64_t to) const;
  // DENSE_EQUIVALENT, likewise. Calls stepped(step) after each step that may have changed a weight.
  void Replay(float* weights, float* slots, uint64_t from, uint64_t to, absl::FunctionRef<void(uint64_t)> stepped) const;

 private:
  // Steps in a row, none skipped, with one learning rate.
  struct Run {
    uint32_t first, last;
    double learning_rate;
  };
  // visit(first, last, learning rate) of the runs within (from, to], in order, until one returns false.
  void ForEachRun(uint64_t from, uint64_t to, absl::FunctionRef<bool(uint64_t, uint64_t, double)> visit) const;
  // `count` steps of running means alone.
  void Fade(float* slots, uint64_t count) const;

  const SparseOptimizer& optimizer_;
  const TableSpec::Mode mode_;
  const uint32_t dim_;
  std::vector<float> fading_;  // of each run of dim slots
  std::vector<float> zero_;    // a gradient [dim]
  bool matter_ = false, remembers_rates_ = false;
  uint64_t begin_ = 0, last_step_ = 0;
  std::vector<Run> runs_;  // ascending, after begin_
};

}  // namespace tandem::ps
