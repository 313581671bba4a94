// The rules of each kind of model for jobs. A kind is named by the chosen field of Job.model, or by
// model.custom.name. The job language asks the kind for the limits and defaults that only this kind
// knows. So nobody else asks which model a job has.
// Thread rule: constant after construction; any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"

namespace tandem {
class Limits;
}

namespace tandem::job {

struct ModelRules {
  std::string name;  // "gpt"
  // Adds one error for every limit of this kind that the job breaks.
  void (*check)(const Job& job, Limits* limits) = nullptr;
  // Fills in the defaults that the kind decides: data format, placement, tables, model and
  // train.select_by. REQUIRES: `check` found nothing.
  void (*resolve)(Job* job) = nullptr;
  // Clears the fields that only training reads. A checkpoint can be evaluated with other values.
  void (*clear_training_fields)(Model* model) = nullptr;
  // The placement of jobs in checkpoints that are older than Job.placement.
  Job::Placement old_placement = Job::PS;
  bool has_bf16 = false;  // train.precision may be BF16
  bool is_cut = false;    // parallel.tp may be more than 1
  // The layers that a pipeline may divide among stages; 0: it cannot.
  int (*num_layers)(const Model& model) = nullptr;
};

// The name of the model's kind; "" if none is chosen.
std::string KindOf(const Model& model);

// The kinds of model that a program knows.
class Models {
 public:
  // REQUIRES: the names differ.
  explicit Models(std::vector<ModelRules> rules);

  // Returns the rules of the model's kind. InvalidArgument names the kinds that there are. The
  // rules live as long as this object.
  absl::StatusOr<const ModelRules*> Find(const Model& model) const;

 private:
  const std::vector<ModelRules> rules_;
};

}  // namespace tandem::job
