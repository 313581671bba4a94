#include "trainer/tasks/text/text_rules.h"

#include "absl/strings/str_cat.h"
#include "proto/job.pb.h"
#include "trainer/job/model_rules.h"
#include "trainer/tasks/transformer_rules.h"

namespace tandem::tasks {

namespace {

constexpr char kTokenTable[] = "token";

// Token rows are on parameter servers if the job says so or describes their table.
bool TokensAreServed(const Job& job) {
  return job.placement() == Job::PS ||
         (job.placement() == Job::PLACEMENT_UNSPECIFIED && job.tables_size() > 0);
}

void CheckTokenTable(const Job& job, const TextModel& model, Limits* limits) {
  if (job.tables_size() == 0) return;
  if (!TokensAreServed(job)) {
    limits->Fail("tables", absl::StrCat(job::KindOf(job.model()),
                                        " with placement REPLICATED has no tables; allowed: none, "
                                        "or placement PS"));
  } else if (job.tables_size() != 1 || job.tables(0).name() != kTokenTable) {
    limits->Fail("tables", absl::StrCat(job::KindOf(job.model()),
                                        " with other tables than \"token\"; allowed: none, or "
                                        "exactly tables { name: \"token\" }"));
  } else if (job.tables(0).has_dim() && job.tables(0).dim() != model.dim) {
    limits->Refuse("tables[0].dim", job.tables(0).dim(),
                   absl::StrCat(model.dim, ", as ", model.path, "dim, or none"));
  }
}

}  // namespace

void CheckTextModel(const Job& job, const TextModel& model, Limits* limits) {
  CheckHeads({.path = model.path,
              .heads = model.heads_given ? model.heads : 0,
              .default_heads = model.heads,
              .dim_path = model.path + "dim",
              .dim = model.dim},
             limits);
  CheckTokenTable(job, model, limits);
  CheckCut(job.parallel().tp(),
           {.path = model.path,
            .heads = model.heads,
            .kv_heads = model.kv_heads,
            .ffn_dim = model.ffn_dim},
           limits);
  const SelectionMetric selection = job.train().select_by();
  if (selection != SELECTION_UNSPECIFIED && selection != VALID_LOSS) {
    limits->Refuse("train.select_by", SelectionMetric_Name(selection),
                   absl::StrCat("VALID_LOSS with ", job::KindOf(job.model())));
  }
}

void ResolveTextModel(int dim, double embedding_stddev, Job* job) {
  Train& train = *job->mutable_train();
  if (train.select_by() == SELECTION_UNSPECIFIED) train.set_select_by(VALID_LOSS);
  const bool served = TokensAreServed(*job);
  job->set_placement(served ? Job::PS : Job::REPLICATED);
  if (!served) return;
  Table& table = job->tables_size() == 0 ? *job->add_tables() : *job->mutable_tables(0);
  table.set_name(kTokenTable);
  table.set_dim(dim);
  if (!table.has_init_stddev()) table.set_init_stddev(embedding_stddev);
}

}  // namespace tandem::tasks
