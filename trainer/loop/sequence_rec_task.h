// Sequential recommendation as a task: samples from an interaction log, the SequenceRec model, ranking metrics over the
// whole catalogue and over fixed negatives. Users are shared out over replicas for evaluation.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "proto/job.pb.h"
#include "trainer/comm/process_group.h"
#include "trainer/data/sequence_sampler.h"
#include "trainer/loop/task.h"
#include "trainer/models/sequence_rec.h"
#include "trainer/remote/remote_embedding.h"

namespace tandem::loop {

// What the files of a job hold. Read once per process; shared by its replicas.
struct SequenceData {
  data::Interactions interactions;
  std::unique_ptr<data::Jagged> negatives;  // null: none given
};
absl::StatusOr<SequenceData> ReadSequenceData(const Job& job);

// How one evaluated user was ranked; ids as in the file.
struct RankedExample {
  uint64_t user = 0, target = 0;
  double rank = 0;
  std::vector<uint64_t> top;  // the 20 best candidates, best first
};
// Called with blocks of examples, in the log's order, on the step's thread.
using ExampleVisitor = std::function<void(const std::vector<RankedExample>&)>;

class SequenceRecTask : public Task {
 public:
  SequenceRecTask(const Job& job, const SequenceData* data, ParameterSet& parameters,
                  remote::RemoteEmbedding* items, comm::ProcessGroup* group);

  int64_t steps_per_epoch() const override { return sampler_.steps_per_epoch(); }
  std::unique_ptr<StepInput> Prepare(int64_t step) const override;
  Variable LossSum(Context& context, const StepInput& input, int part, const Variable& rows) const override;
  absl::StatusOr<Evaluation> Evaluate(EvaluationSplit split, Stream& stream, absl::Time deadline) override {
    return Evaluate(split, stream, deadline, nullptr);
  }
  // `visit`, if given, sees this replica's users.
  absl::StatusOr<Evaluation> Evaluate(EvaluationSplit split, Stream& stream, absl::Time deadline,
                                      const ExampleVisitor& visit);

 private:
  // Ranks of the evaluated users that are this replica's, at their places; 0 elsewhere.
  absl::Status RankUsers(data::Split split, const Tensor& items, Stream& stream, std::vector<double>& full,
                         std::vector<double>& sampled, const ExampleVisitor& visit) const;

  const Job job_;
  const SequenceData* data_;
  data::SequenceSampler sampler_;
  models::SequenceRec model_;
  remote::RemoteEmbedding* items_;
  comm::ProcessGroup* group_;
};

}  // namespace tandem::loop
