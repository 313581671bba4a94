#include "trainer/parallel/pipeline/executor.h"

#include <algorithm>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace tandem::parallel {

absl::Status PipelineExecutor::Run(StageRunner& runner, absl::Time deadline) {
  absl::Status status = RunList(runner, deadline);
  if (!status.ok()) {
    edges_.Abort(status);
    // The arrays may be freed once nothing is under way.
    if (next_) Await(*next_, absl::InfiniteFuture()).IgnoreError();
    for (const Message& message : sent_) Await(message, absl::InfiniteFuture()).IgnoreError();
  }
  next_.reset();
  sent_.clear();
  return status;
}

absl::Status PipelineExecutor::RunList(StageRunner& runner, absl::Time deadline) {
  const std::vector<StageOp>& ops = schedule_.ranks[static_cast<size_t>(rank_)];
  if (!ops.empty()) next_ = Receive(runner, ops.front());
  for (size_t i = 0; i < ops.size(); ++i) {
    const StageOp& op = ops[i];
    StageArrays received;
    if (next_) {
      if (observer_ != nullptr) observer_->Waits(op);
      RETURN_IF_ERROR(Await(*next_, deadline));
      received = std::move(next_->arrays);
      next_.reset();
    }
    if (i + 1 < ops.size()) next_ = Receive(runner, ops[i + 1]);
    RETURN_IF_ERROR(DropSent());
    if (observer_ != nullptr) observer_->Begins(op);
    RETURN_IF_ERROR(RunOp(runner, op, std::move(received)));
    if (observer_ != nullptr) observer_->Ends(op);
  }
  for (const Message& message : sent_) RETURN_IF_ERROR(Await(message, deadline));
  return absl::OkStatus();
}

absl::Status PipelineExecutor::RunOp(StageRunner& runner, const StageOp& op, StageArrays received) {
  switch (op.work) {
    case StageWork::FORWARD: {
      ASSIGN_OR_RETURN(StageArrays output,
                       runner.Forward(op.chunk, op.microbatch, std::move(received)));
      Send(op, std::move(output));
      return absl::OkStatus();
    }
    case StageWork::BACKWARD:
    case StageWork::BACKWARD_INPUT: {
      ASSIGN_OR_RETURN(StageArrays gradient,
                       runner.Backward(op.chunk, op.microbatch, std::move(received),
                                       op.work == StageWork::BACKWARD));
      Send(op, std::move(gradient));
      return absl::OkStatus();
    }
    case StageWork::BACKWARD_WEIGHT:
      return runner.BackwardWeight(op.chunk, op.microbatch);
  }
  return absl::InternalError("no such work of a stage");
}

std::optional<PipelineExecutor::Message> PipelineExecutor::Receive(StageRunner& runner,
                                                                   const StageOp& op) {
  const int stage = schedule_.StageOf(rank_, op.chunk);
  const bool forward = op.work == StageWork::FORWARD;
  if (op.work == StageWork::BACKWARD_WEIGHT || stage == (forward ? 0 : schedule_.num_stages() - 1))
    return std::nullopt;
  Message message;
  message.group = (forward ? edges_.activations_in : edges_.gradients_in).get();
  TANDEM_CHECK(message.group != nullptr) << "rank " << rank_ << " has no edge for its messages";
  message.arrays = forward ? runner.ForInput(op.chunk, op.microbatch)
                           : runner.ForOutputGradient(op.chunk, op.microbatch);
  const comm::CollectiveArgs args{.stream = stream_, .tag = TagOf(stage, op.microbatch)};
  for (const Tensor& array : message.arrays)
    message.works.push_back(message.group->Recv(array.view(), /*source=*/0, args));
  return message;
}

void PipelineExecutor::Send(const StageOp& op, StageArrays arrays) {
  const int stage = schedule_.StageOf(rank_, op.chunk);
  const bool forward = op.work == StageWork::FORWARD;
  const int to = forward ? stage + 1 : stage - 1;
  if (to < 0 || to == schedule_.num_stages()) {
    TANDEM_CHECK(arrays.empty()) << "stage " << stage << " has no neighbour to send to";
    return;
  }
  Message message;
  message.group = (forward ? edges_.activations_out : edges_.gradients_out).get();
  TANDEM_CHECK(message.group != nullptr) << "rank " << rank_ << " has no edge for its messages";
  message.arrays = std::move(arrays);
  const comm::CollectiveArgs args{.stream = stream_, .tag = TagOf(to, op.microbatch)};
  for (const Tensor& array : message.arrays)
    message.works.push_back(message.group->Send(array.view(), /*target=*/1, args));
  sent_.push_back(std::move(message));
}

absl::Status PipelineExecutor::Await(const Message& message, absl::Time deadline) {
  for (const comm::Work& work : message.works)
    RETURN_IF_ERROR(message.group->Await(work, deadline));
  return absl::OkStatus();
}

absl::Status PipelineExecutor::DropSent() {
  const auto is_away = [](const Message& message) {
    return std::all_of(message.works.begin(), message.works.end(),
                       [](const comm::Work& work) { return work.done(); });
  };
  // Messages of an edge leave in order, and edges take turns, so few are left behind an away one.
  while (!sent_.empty() && is_away(sent_.front())) {
    RETURN_IF_ERROR(Await(sent_.front(), absl::InfiniteFuture()));
    sent_.pop_front();
  }
  return absl::OkStatus();
}

uint64_t PipelineExecutor::TagOf(int receiving_stage, int microbatch) const {
  return static_cast<uint64_t>(microbatch) * static_cast<uint64_t>(schedule_.num_stages()) +
         static_cast<uint64_t>(receiving_stage);
}

}  // namespace tandem::parallel
