// The data of a language model job: a text with its vocabulary.
// Thread rule: const methods from any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trainer/data/text.h"
#include "trainer/tasks/job_data.h"

namespace tandem::tasks {

class TextData : public JobData {
 public:
  static absl::StatusOr<std::unique_ptr<TextData>> Read(const Job& job);
  // `path` is the file of the text; `max_length` is the length of a window.
  explicit TextData(data::Text text, std::string path = "", int64_t max_length = 1)
      : text_(std::move(text)), path_(std::move(path)), max_length_(max_length) {}

  const data::Text& text() const { return text_; }

  std::string Description() const override;
  std::vector<SavedFile> Files() const override { return {FileOf(path_, text_.source)}; }
  std::string Symbols() const override { return text_.vocabulary.Symbols(); }
  int64_t num_embeddings() const override { return text_.vocabulary.size(); }
  std::unique_ptr<Task> MakeTask(const Job& job, const TaskEnvironment& environment) const override;
  std::vector<ReferenceColumn> References() const override;

 private:
  const data::Text text_;
  const std::string path_;
  const int64_t max_length_;
};

}  // namespace tandem::tasks
