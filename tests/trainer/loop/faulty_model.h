// A task whose numbers turn to NaN or infinity in one step or one evaluation, of one replica or of
// all.
#pragma once

#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainer/autograd/ops/ops.h"
#include "trainer/tasks/job_data.h"

namespace tandem::loop {

enum class FaultKind {
  NONE,
  LOSS,            // the loss is NaN, and so are its gradients
  GRADIENT,        // the loss is finite, its gradients are not
  LARGE_GRADIENT,  // loss and gradients are finite, the squares of gradients are not
  VALID,           // a figure of the validation is NaN
  TEST,            // a figure of the test is infinite
};

struct Fault {
  FaultKind kind = FaultKind::NONE;
  int64_t step = 0;  // of LOSS to LARGE_GRADIENT; of VALID and TEST: which validation, from 1
  int rank = 0;      // whose loss; every replica evaluates alike
};

class FaultyTask : public tasks::Task {
 public:
  FaultyTask(std::unique_ptr<tasks::Task> task, const Fault& fault, int rank)
      : task_(std::move(task)), fault_(fault), rank_(rank) {}

  int64_t steps_per_epoch() const override { return task_->steps_per_epoch(); }
  std::unique_ptr<tasks::StepInput> Prepare(int64_t step) const override {
    return task_->Prepare(step);
  }

  Variable StageRows(Context& context, const tasks::StepInput& input, int part,
                     absl::Span<const Variable> rows, int chunk,
                     const Variable& before) const override {
    return task_->StageRows(context, input, part, rows, chunk, before);
  }
  Variable LossSum(Context& context, const tasks::StepInput& input, int part,
                   absl::Span<const Variable> rows, const Variable& hidden) const override {
    const Variable loss = task_->LossSum(context, input, part, rows, hidden);
    if (static_cast<int64_t>(context.step()) != fault_.step || rank_ != fault_.rank) return loss;
    switch (fault_.kind) {
      case FaultKind::LOSS:
        return ops::Scale(context, loss, std::numeric_limits<double>::quiet_NaN());
      case FaultKind::LARGE_GRADIENT:
        return ops::Scale(context, loss, 1e30);
      case FaultKind::GRADIENT: {
        Variable zero = loss;  // whose gradient overflows on its way back
        for (const double factor : {1e-30, 1e-30, 1e30, 1e30})
          zero = ops::Scale(context, zero, factor);
        return ops::Add(context, loss, zero);
      }
      default:
        return loss;
    }
  }

  absl::StatusOr<tasks::Evaluation> Evaluate(tasks::EvaluationSplit split,
                                             const tasks::EvaluationArgs& args) override {
    auto evaluation = task_->Evaluate(split, args);
    if (!evaluation.ok()) return evaluation;
    evaluations_ += split == tasks::EvaluationSplit::VALID;
    if (evaluations_ != fault_.step) return evaluation;
    if (fault_.kind == FaultKind::VALID && split == tasks::EvaluationSplit::VALID) {
      evaluation->metrics["faulty"] = std::numeric_limits<double>::quiet_NaN();
    }
    if (fault_.kind == FaultKind::TEST && split == tasks::EvaluationSplit::TEST) {
      evaluation->metrics["faulty"] = std::numeric_limits<double>::infinity();
    }
    return evaluation;
  }
  std::optional<tasks::LargestProduct> Bf16Product() const override { return task_->Bf16Product(); }

 private:
  const std::unique_ptr<tasks::Task> task_;
  const Fault fault_;
  const int rank_;
  int64_t evaluations_ = 0;
};

class FaultyData : public tasks::JobData {
 public:
  FaultyData(std::unique_ptr<tasks::JobData> data, const Fault& fault)
      : data_(std::move(data)), fault_(fault) {}

  std::string Description() const override { return data_->Description(); }
  std::string Symbols() const override { return data_->Symbols(); }
  int64_t num_embeddings() const override { return data_->num_embeddings(); }
  std::vector<tasks::ReferenceColumn> References() const override { return data_->References(); }
  std::unique_ptr<tasks::Task> MakeTask(const Job& job,
                                        const tasks::TaskEnvironment& environment) const override {
    return std::make_unique<FaultyTask>(data_->MakeTask(job, environment), fault_,
                                        environment.group->rank());
  }

 private:
  const std::unique_ptr<tasks::JobData> data_;
  const Fault fault_;
};

}  // namespace tandem::loop
