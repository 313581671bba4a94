// How replicas share the examples of an evaluation: each takes its contiguous part in blocks, and between blocks all agree whether
// to go on, so that a stop that reaches one of them in the middle of a long evaluation ends it everywhere after the same block.
// Thread rule: the step's thread.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "trainer/comm/process_group.h"
#include "trainer/data/batch_share.h"
#include "trainer/tasks/task.h"

namespace tandem::tasks {

// Runs `evaluate` on this replica's share of `num_examples`, at most `block_size` at a time. False if a stop was agreed on before
// the last block. Collective: every replica asks args.stop_agreed equally often, however its share is cut.
absl::StatusOr<bool> ForEachBlock(int64_t num_examples, int64_t block_size, const comm::ProcessGroup& group,
                                  const EvaluationArgs& args, absl::FunctionRef<void(const data::BatchShare&)> evaluate);

}  // namespace tandem::tasks
