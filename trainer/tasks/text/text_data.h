// The data of a language model job: a text with its vocabulary.
// Thread rule: const methods from any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trainer/data/text/text.h"
#include "trainer/tasks/job_data.h"

namespace tandem::tasks {

// The text of a job, as read.
struct TextFile {
  data::Text text;
  std::string path = "";
  int64_t max_length = 1;  // of a window
};

// Its task is that of the kind of model (DataOf in kind.h).
class TextData : public JobData {
 public:
  // The rules of Job.data for this data.
  static void Check(const Job& job, Limits* limits);
  static void Resolve(Job* job);
  // `max_length` is the length of a window.
  static absl::StatusOr<TextFile> Read(const Job& job, int64_t max_length);
  explicit TextData(TextFile file) : file_(std::move(file)) {}

  const data::Text& text() const { return file_.text; }

  std::string Description() const override;
  std::vector<SavedFile> Files() const override { return {FileOf(file_.path, file_.text.source)}; }
  std::string Symbols() const override { return file_.text.vocabulary.Symbols(); }
  int64_t num_embeddings() const override { return file_.text.vocabulary.size(); }
  std::vector<ReferenceColumn> References() const override;

 private:
  const TextFile file_;
};

}  // namespace tandem::tasks
