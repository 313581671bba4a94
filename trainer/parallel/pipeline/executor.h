// Runs a rank's list of a pipeline schedule: receives what an operation needs, runs the operation,
// sends what it made. What an operation computes is the runner's business.
// Receives are posted one operation ahead. A send leaves the rank free, and its arrays are dropped
// once they are away.
// REQUIRES: VerifySchedule has accepted the schedule.
// Thread rule: the step's thread.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "trainer/comm/process_group.h"
#include "trainer/parallel/pipeline/edges.h"
#include "trainer/parallel/pipeline/schedule.h"
#include "trainer/tensor/tensor.h"

namespace tandem::parallel {

// The arrays that pass between two stages for one microbatch.
using StageArrays = std::vector<Tensor>;

// The computation of a rank on its chunks.
class StageRunner {
 public:
  virtual ~StageRunner() = default;
  // Memory for what a chunk receives: the input of its forward, or the gradient of its output.
  virtual StageArrays ForInput(int chunk, int microbatch) = 0;
  virtual StageArrays ForOutputGradient(int chunk, int microbatch) = 0;
  // Returns the chunk's output; nothing of the last stage. `input` is empty in the first stage.
  virtual absl::StatusOr<StageArrays> Forward(int chunk, int microbatch, StageArrays input) = 0;
  // Returns the gradient of the chunk's input; nothing of the first stage. `gradient` is empty in
  // the last stage. With `weights`, runs the weight half too.
  virtual absl::StatusOr<StageArrays> Backward(int chunk, int microbatch, StageArrays gradient,
                                               bool weights) = 0;
  virtual absl::Status BackwardWeight(int chunk, int microbatch) = 0;
};

// Told of a rank's operations, on the step's thread.
class StageObserver {
 public:
  virtual ~StageObserver() = default;
  virtual void Waits(const StageOp& op) = 0;  // for its message
  virtual void Begins(const StageOp& op) = 0;
  virtual void Ends(const StageOp& op) = 0;  // and its message is on its way
};

class PipelineExecutor {
 public:
  // `edges` and `observer` (null: none) outlive the executor. `stream`: where arrays are computed.
  PipelineExecutor(const PipelineSchedule& schedule, int rank, const PipelineEdges* edges,
                   Stream* stream, StageObserver* observer)
      : schedule_(schedule), rank_(rank), edges_(*edges), stream_(stream), observer_(observer) {}

  // Runs the rank's list. A failure aborts the edges, so that the neighbours fail too.
  absl::Status Run(StageRunner& runner, absl::Time deadline);

 private:
  // A message on its way. Its arrays live until its works are done.
  struct Message {
    comm::ProcessGroup* group = nullptr;
    StageArrays arrays;
    std::vector<comm::Work> works;
  };

  absl::Status RunList(StageRunner& runner, absl::Time deadline);
  absl::Status RunOp(StageRunner& runner, const StageOp& op, StageArrays received);
  // Posts the receives of an operation; nothing if it needs no message.
  std::optional<Message> Receive(StageRunner& runner, const StageOp& op);
  void Send(const StageOp& op, StageArrays arrays);
  absl::Status Await(const Message& message, absl::Time deadline);
  // Drops the messages that are away. Returns the first failure.
  absl::Status DropSent();
  uint64_t TagOf(int receiving_stage, int microbatch) const;

  const PipelineSchedule& schedule_;
  const int rank_;
  const PipelineEdges& edges_;
  Stream* const stream_;
  StageObserver* const observer_;
  std::deque<Message> sent_;
  std::optional<Message> next_;  // posted for the next operation
};

}  // namespace tandem::parallel
