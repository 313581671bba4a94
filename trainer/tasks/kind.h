// A kind of model: its rules for jobs, its data, its task. A program passes the kinds that it adds
// to tandem::Main; the project adds its own in kinds.cc by the same call:
//   tandem::tasks::Add<TwoTower>("two_tower")
// Thread rule: values; constant after construction.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "kernels/base/status_macros.h"
#include "trainer/job/model_rules.h"
#include "trainer/tasks/job_data.h"

namespace tandem::tasks {

struct Kind {
  job::ModelRules rules;
  // Reads the job's data (JobData).
  absl::StatusOr<std::unique_ptr<JobData>> (*read)(const Job& job, DataUse use,
                                                   const SavedItems& saved) = nullptr;
  MakeTextDecoder make_decoder = nullptr;          // null: the model writes no text
  bool ranks_items = false;                        // Task::kRanksItems
  bool (*reads_titles)(const Job& job) = nullptr;  // Task::ReadsTitles
};

// Data over which T is the task. So tasks of several kinds can share one class of data.
template <class T>
class DataOf : public T::Data {
  using Data = typename T::Data;

 public:
  using Data::Data;
  std::unique_ptr<Task> MakeTask(const Job& job,
                                 const TaskEnvironment& environment) const override {
    return std::make_unique<T>(job, static_cast<const Data*>(this), environment);
  }
};

template <class T>
absl::StatusOr<std::unique_ptr<JobData>> ReadDataOf(const Job& job, DataUse use,
                                                    const SavedItems& saved) {
  ASSIGN_OR_RETURN(auto files, T::ReadData(job, use, saved));
  return std::make_unique<DataOf<T>>(std::move(files));
}

// The kind `name`, whose task is T. T is a Task, and it has:
// - a type T::Data: SequenceData, TextData or a JobData with the functions Check and Resolve that
//   these have;
// - a function ReadData, which takes the arguments of Kind::read and returns what T::Data is
//   constructed from;
// - a constructor T(const Job&, const T::Data*, const TaskEnvironment&);
// - those of Task's static functions that it hides.
template <class T>
Kind Add(std::string name) {
  const auto check = [](const Job& job, Limits* limits) {
    T::Data::Check(job, limits);
    T::Check(job, limits);
    if (!job.model().has_custom()) return;
    job::CustomOptions options(job, limits);
    T::Options(options);
    options.RefuseUnknown();
  };
  const auto resolve = [](Job* job) {
    if (job->model().has_custom()) {
      job::CustomOptions options(*job);
      T::Options(options);
      auto& values = *job->mutable_model()->mutable_custom()->mutable_options()->mutable_values();
      for (const auto& [option, value] : options.values()) values[option] = value;
    }
    T::Data::Resolve(job);
    T::Resolve(job);
  };
  return {.rules = {.name = std::move(name),
                    .check = check,
                    .resolve = resolve,
                    .clear_training_fields = T::ClearTrainingFields,
                    .old_placement = T::kOldPlacement,
                    .has_bf16 = T::kHasBf16,
                    .is_cut = T::kIsCut,
                    .num_layers = T::NumLayers},
          .read = ReadDataOf<T>,
          .make_decoder = T::MakeDecoder,
          .ranks_items = T::kRanksItems,
          .reads_titles = T::ReadsTitles};
}

}  // namespace tandem::tasks
