#include "trainer/tasks/task.h"

#include "absl/strings/str_cat.h"
#include "trainer/job/model_rules.h"

namespace tandem::tasks {

void Task::Check(const Job& job, Limits* limits) {
  const std::string kind = job::KindOf(job.model());
  if (job.tables_size() > 1 || (job.tables_size() == 0 && job.placement() == Job::PS)) {
    limits->Fail("tables", absl::StrCat(kind, " with ", job.tables_size(),
                                        " tables; allowed: one, or none without placement PS"));
  }
  const SelectionMetric selection = job.train().select_by();
  if (selection != SELECTION_UNSPECIFIED && selection != VALID_LOSS) {
    limits->Refuse("train.select_by", SelectionMetric_Name(selection),
                   absl::StrCat("VALID_LOSS with ", kind));
  }
}

void Task::Resolve(Job* job) {
  if (job->placement() == Job::PLACEMENT_UNSPECIFIED)
    job->set_placement(job->tables_size() > 0 ? Job::PS : Job::REPLICATED);
  Train& train = *job->mutable_train();
  if (train.select_by() == SELECTION_UNSPECIFIED) train.set_select_by(VALID_LOSS);
}

}  // namespace tandem::tasks
