// How replicas share the examples of an evaluation. Each replica takes a contiguous share in
// blocks. Between blocks all replicas agree whether to go on. So a stop that reaches one replica in
// a long evaluation ends it on all replicas after the same block.
// Thread rule: the step's thread.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "trainer/comm/process_group.h"
#include "trainer/data/batch_share.h"
#include "trainer/tasks/task.h"

namespace tandem::tasks {

// The ranks that share an evaluation. REQUIRES: both groups outlive the object.
struct EvaluationRanks {
  comm::ProcessGroup* replicas = nullptr;
  comm::ProcessGroup* stages = nullptr;  // of this replica; null: this rank alone

  int num_stages() const { return stages == nullptr ? 1 : stages->size(); }
};

// Runs `evaluate` on this replica's share of `num_examples`, in blocks of at most `block_size`: one
// block at a time, or, with several stages, enough blocks to keep all of them at work. Every
// replica gets equally many blocks, because a model may need all of them (ZeRO stage 3). The last
// blocks of a smaller share may be empty.
// Returns false if the replicas agreed on a stop before the last block. Collective: every replica
// calls args.stop_agreed equally often, however the shares are cut.
absl::StatusOr<bool> ForEachBlock(
    int64_t num_examples, int64_t block_size, const EvaluationRanks& ranks,
    const EvaluationArgs& args,
    absl::FunctionRef<absl::Status(absl::Span<const data::BatchShare>)> evaluate);

// Adds up what the replicas' last stages wrote to their own places of `figures`, which are 0
// elsewhere. So the sum is exact. `tag` names the figures in errors. Returns the stream's error if
// the stream failed. Collective.
absl::Status SumShares(const EvaluationRanks& ranks, const EvaluationArgs& args, const char* tag,
                       std::vector<double>* figures);

}  // namespace tandem::tasks
