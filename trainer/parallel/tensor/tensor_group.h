// Tensor parallelism (Shoeybi et al., "Megatron-LM", 2019). The ranks of a group work on the same
// rows. Products are cut by columns, then by rows: Enter sums the gradients of what enters a cut
// layer, Leave sums what leaves it. With sequence parallelism (Korthikanti et al. 2022) each rank
// has its part of the rows in between: Enter gathers them, in forward and again in backward, and
// Leave gives each rank the sum of its rows.
// The vocabulary is cut too: an embedding is a lookup in the own rows and a sum, and a loss
// exchanges three numbers for each row instead of the logits. No rank ever holds a cut parameter
// whole.
// Thread rule: the step's thread.
#pragma once

#include <optional>

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

class TensorGroup : public nn::TensorParallel {
 public:
  // `cut_rows`: sequence parallelism.
  // REQUIRES: the group outlives this object, and its arrays lie where the model computes.
  TensorGroup(comm::ProcessGroup* group, bool cut_rows) : group_(*group), cut_rows_(cut_rows) {}

  comm::ProcessGroup& group() const { return group_; }
  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  bool cuts_rows() const override { return cut_rows_; }
  // The rows of the residual stream on each rank, with padding, of `num_rows` rows in all.
  int64_t NumRowsHere(int64_t num_rows) const {
    return cut_rows_ ? RowsPerRank(num_rows) : num_rows;
  }
  Variable Enter(Context& context, const Variable& x, int64_t num_rows) const override;
  // Enter for any rows that are equal on all ranks, also with sequence parallelism.
  Variable EnterEqual(Context& context, const Variable& x) const;
  // Without sequence parallelism, sums in place. REQUIRES: nobody else reads `partial`.
  Variable Leave(Context& context, const Variable& partial) const override;
  Variable Split(Context& context, const Variable& x) const override;
  Variable Join(Context& context, const Variable& x, int64_t num_rows) const override;
  Tensor NumbersHere(Context& context, const Tensor& numbers) const override;

  // Rows `index` [R] of a table [V, D], of which `part` has rows first, first + 1, ..., as rows of
  // the residual stream.
  Variable GatherRows(Context& context, const Variable& part, int64_t first,
                      const Tensor& index) const;
  // The head whose classes are the rows [V, D], equal on all ranks: each rank takes its part of
  // them. The gradient of `rows` is equal on all ranks.
  CutHead HeadOfRows(Context& context, const Variable& rows) const;
  // The sum of the rows' cross entropies over all classes, a scalar. Targets i64 [R] are numbers
  // among all classes. The logits of a rank's classes never leave the rank.
  // REQUIRES: `hidden`, all rows, has entered.
  Variable CrossEntropySum(Context& context, const Variable& hidden, const CutHead& head,
                           const Tensor& targets) const;
  // The cross entropy of each row, [R]. Computes no gradients.
  Tensor CrossEntropies(Context& context, const Variable& hidden, const CutHead& head,
                        const Tensor& targets) const;

 protected:
  // Clears the rows that pad a sum over all rows to equal parts, so that they count for nothing.
  virtual void ClearPadding(const Tensor& rows, Stream& stream) const;

 private:
  // Reduces an array over the ranks in place. A failure fails the context.
  void Reduce(Context& context, const Tensor& x, comm::ReduceOp op, const char* what) const;
  void Await(Context& context, const comm::Work& work) const;
  // The rows of each rank's part of `num_rows`, with padding.
  int64_t RowsPerRank(int64_t num_rows) const { return (num_rows + size() - 1) / size(); }
  // Rows [T, ...] with rows of zeros up to `size` equal parts. Without padding, `rows` itself.
  Tensor Padded(Context& context, const Tensor& rows) const;
  // This rank's rows of all rows [T, ...], with padding.
  Tensor OwnRows(Context& context, const Tensor& rows) const;
  // A sum over ranks: what it reads, and its result for the residual stream here.
  struct Sum {
    Tensor from, result;
    std::optional<comm::Work> work;  // none: the step has failed
  };
  class SumInFlight;
  // Starts the sum of all rows, for this rank's rows alone if `cut`, else in place.
  Sum StartSum(Context& context, const Tensor& rows, bool cut) const;
  // Records that x enters cut layers as `entered`. The gradient is summed on its way back.
  Variable RecordEntry(Context& context, const Variable& x, const Tensor& entered, bool cut,
                       std::shared_ptr<Recoverable> recoverable) const;
  Tensor Gather(Context& context, const Tensor& own, int64_t num_rows, const char* what) const;
  struct Losses {
    Tensor log_sum, loss;  // [R]: over all classes
  };
  Losses LossesOf(Context& context, const Variable& hidden, const CutHead& head,
                  const Tensor& targets) const;

  comm::ProcessGroup& group_;
  const bool cut_rows_;
};

}  // namespace tandem::parallel
