// The kinds of model that a program knows: the project's, and others that the program adds. main
// makes the list and passes the list on.
// Thread rule: constant after construction; any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trainer/tasks/kind.h"

namespace tandem::tasks {

class Kinds {
 public:
  // REQUIRES: no two kinds have one name.
  explicit Kinds(std::vector<Kind> more = {});

  // The kinds' rules, for LoadJob and checkpoints.
  const job::Models& models() const { return models_; }
  // REQUIRES: the job was loaded with models().
  const Kind& Of(const Job& job) const;

  // Reads the job's data. DataLoss if the files hold nothing for `use`; the error says what is
  // needed and what was found.
  // `saved` is a checkpoint's: its ids are the whole catalogue of a job with data.ids MAP. Empty:
  // the catalogue is the ids in the files.
  absl::StatusOr<std::unique_ptr<JobData>> ReadData(const Job& job, DataUse use = DataUse::TRAIN,
                                                    const SavedItems& saved = {}) const {
    return Of(job).read(job, use, saved);
  }

 private:
  const std::vector<Kind> kinds_;
  const job::Models models_;
};

}  // namespace tandem::tasks
