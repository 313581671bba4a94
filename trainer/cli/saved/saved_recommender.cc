#include "trainer/cli/saved/saved_recommender.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/checkpoint/saved_data.h"
#include "trainer/comm/host/thread_group.h"
#include "trainer/job/model_rules.h"
#include "trainer/tasks/embedding_table.h"

namespace tandem::cli {

namespace {

// Adds items that nobody has trained on after the catalogue's last one.
void AddItems(const std::vector<std::string>& titles, Job* job, checkpoint::SavedItems* items) {
  if (job->data().ids() == Data::DENSE)
    job->mutable_data()->set_num_items(job->data().num_items() + titles.size());
  for (size_t i = 0; i < titles.size(); ++i) {
    absl::StrAppend(&items->catalogue, "0\t", titles[i], "\n");
    // A blank is in no id of a log.
    if (job->data().ids() == Data::MAP) absl::StrAppend(&items->ids, "title ", i + 1, "\n");
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<SavedRecommender>> SavedRecommender::Load(
    const std::string& path, const std::vector<std::string>& new_titles,
    const tasks::Kinds& kinds) {
  ASSIGN_OR_RETURN(const checkpoint::Checkpoint saved,
                   checkpoint::OpenCheckpoint(path, checkpoint::Choice::BEST));
  RETURN_IF_ERROR(CheckSavedJob(saved, kinds.models()));
  auto model = std::make_unique<SavedRecommender>();
  Job& job = model->job_;
  job = saved.manifest.job();
  const tasks::Kind& kind = kinds.Of(job);
  if (!kind.ranks_items) {
    return absl::FailedPreconditionError(absl::StrCat(
        "checkpoint ", saved.folder, " holds no recommender, but a ", job::KindOf(job.model())));
  }
  if (!new_titles.empty() && (!kind.reads_titles(job) || job.placement() != Job::PS)) {
    return absl::FailedPreconditionError(
        absl::StrCat("checkpoint ", saved.folder,
                     " knows items only by their rows, so titles of other items tell it nothing"));
  }
  ASSIGN_OR_RETURN(checkpoint::SavedItems items, checkpoint::ReadItems(saved));
  if (job.data().ids() == Data::DENSE)
    job.mutable_data()->set_num_items(checkpoint::CatalogueOf(saved.manifest));
  AddItems(new_titles, &job, &items);
  ASSIGN_OR_RETURN(model->files_,
                   kinds.ReadData(job, tasks::DataUse::RECOMMEND, {items.ids, items.catalogue}));
  model->data_ = &dynamic_cast<const tasks::SequenceData&>(*model->files_);
  ASSIGN_OR_RETURN(model->tables_, SavedTables::Load(saved, job.ps().threads(), kTimeout));
  model->groups_ = comm::ThreadGroup::Create(1, "dp", kTimeout);
  model->pool_ = std::make_unique<ThreadPool>(job.runtime().threads());
  model->stream_ = std::make_unique<Stream>(model->pool_.get());
  model->parameters_ = std::make_unique<ParameterSet>(job.seed(), DType::F32);
  model->embeddings_ =
      tasks::MakeEmbeddingTables(job, model->tables_->rows(), model->stream_.get());
  model->task_ = model->files_->MakeTask(job, {.parameters = model->parameters_.get(),
                                               .tables = model->embeddings_.get(),
                                               .group = model->groups_[0].get()});
  RETURN_IF_ERROR(checkpoint::LoadParameters(saved, *model->parameters_));
  return model;
}

}  // namespace tandem::cli
