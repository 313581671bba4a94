// Applies the steps in which a row had no gradient, when the row is used again (TableSpec.Mode).
// CATCH_UP decays running means and weights in closed form, and ignores all other effects of a
// gradient of zero. DENSE_EQUIVALENT runs the optimizer's own rule with a gradient of zero, step by
// step, until no weight can move any more. After that only running means decay, one multiplication
// a step. So the bits equal those of an optimizer that updates all rows in all steps. A row misses
// steps only after its first commit.
// Thread rule: one thread at a time; const methods keep no state.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "proto/embedding.pb.h"
#include "ps/optimizer/sparse_optimizer.h"

namespace tandem::ps {

class LazyCatchUp {
 public:
  // `optimizer` outlives this.
  LazyCatchUp(const SparseOptimizer& optimizer, TableSpec::Mode mode, uint32_t dim);

  // True if missed steps change anything.
  bool matter() const { return matter_; }
  // True if the result does not depend on when, and in how many parts, missed steps are run.
  bool exact() const { return mode_ == TableSpec::DENSE_EQUIVALENT; }
  // True if learning rates are remembered. A file of rows lacks these rates, so all rows must be
  // brought up before they are saved. Memory: 16 bytes for each change of rate since BeginAfter.
  bool remembers_rates() const { return remembers_rates_; }

  // The last step that was applied or skipped.
  uint64_t last_step() const { return last_step_; }
  // Forgets all learning rates up to `step`.
  // REQUIRES: every row is current as of `step`.
  void BeginAfter(uint64_t step);
  // Records that the step was applied to the rows with a gradient, or skipped for all rows. Only
  // the first of several commits of a step counts. A commit of a step before the last is ignored,
  // because rows miss only whole steps.
  void Add(uint64_t step, double learning_rate, bool skipped);

  // CATCH_UP: brings weights [dim] and slots of a row from their state after step `from` to their
  // state after `to`.
  void CatchUp(float* weights, float* slots, uint64_t from, uint64_t to) const;
  // The factor by which CatchUp multiplies weights.
  float WeightDecay(uint64_t from, uint64_t to) const;
  // DENSE_EQUIVALENT: does the same as CatchUp, exactly. Calls stepped(step) after each step that
  // may have changed a weight.
  void Replay(float* weights, float* slots, uint64_t from, uint64_t to,
              absl::FunctionRef<void(uint64_t)> stepped) const;

 private:
  // Consecutive steps with one learning rate, none skipped.
  struct Run {
    uint32_t first, last;
    double learning_rate;
  };
  // Calls visit(first, last, learning rate) for the runs within (from, to], in order, until a call
  // returns false.
  void ForEachRun(uint64_t from, uint64_t to,
                  absl::FunctionRef<bool(uint64_t, uint64_t, double)> visit) const;
  // Decays running means by `count` steps, and changes nothing else.
  void Fade(float* slots, uint64_t count) const;

  const SparseOptimizer& optimizer_;
  const TableSpec::Mode mode_;
  const uint32_t dim_;
  std::vector<float> fading_;  // decay factor of each run of dim slots
  std::vector<float> zero_;    // a gradient of zeros [dim]
  bool matter_ = false, remembers_rates_ = false;
  uint64_t begin_ = 0, last_step_ = 0;
  std::vector<Run> runs_;  // ascending, after begin_
};

}  // namespace tandem::ps
