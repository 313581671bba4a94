// Tensor parallelism (Shoeybi et al., "Megatron-LM", 2019). The ranks of a group work on the same
// rows. Products are cut by columns, then by rows: Enter sums the gradients of what enters a cut
// layer, Leave sums what leaves it. The vocabulary is cut too: an embedding is a lookup in the own
// rows and a sum, and a loss exchanges three numbers for each row instead of the logits.
// No rank ever holds a cut parameter whole.
// Thread rule: the step's thread.
#pragma once

#include "trainer/comm/process_group.h"
#include "trainer/nn/tensor_parallel.h"

namespace tandem::parallel {

// A head over some of the classes (ops::LinearCrossEntropySum).
struct CutHead {
  Variable weight;  // [D, V here], or [V here, D] if it is a table
  bool is_table = false;
  Variable bias = {};       // [V here]; undefined: none
  int64_t first_class = 0;  // of those here, among all
};

class TensorGroup final : public nn::TensorParallel {
 public:
  // REQUIRES: the group outlives this object, and its arrays lie where the model computes.
  explicit TensorGroup(comm::ProcessGroup* group) : group_(*group) {}

  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  Variable Enter(Context& context, const Variable& x) const override;
  // Sums in place. REQUIRES: nobody else reads `partial`.
  Variable Leave(Context& context, const Variable& partial) const override;

  // Rows `index` [R] of a table [V, D], of which `part` has rows first, first + 1, ... -> [R, D].
  Variable GatherRows(Context& context, const Variable& part, int64_t first,
                      const Tensor& index) const;
  // The sum of the rows' cross entropies over all classes, a scalar. Targets i64 [R] are numbers
  // among all classes. The logits of a rank's classes never leave the rank.
  // REQUIRES: `hidden` has entered.
  Variable CrossEntropySum(Context& context, const Variable& hidden, const CutHead& head,
                           const Tensor& targets) const;
  // The cross entropy of each row, [R]. Computes no gradients.
  Tensor CrossEntropies(Context& context, const Variable& hidden, const CutHead& head,
                        const Tensor& targets) const;

 private:
  // Reduces an array over the ranks in place. A failure fails the context.
  void Reduce(Context& context, const Tensor& x, comm::ReduceOp op, const char* what) const;
  struct Losses {
    Tensor log_sum, loss;  // [R]: over all classes
  };
  Losses LossesOf(Context& context, const Variable& hidden, const CutHead& head,
                  const Tensor& targets) const;

  comm::ProcessGroup& group_;
};

}  // namespace tandem::parallel
