// A text with its vocabulary, as a job's data.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trainer/data/text.h"
#include "trainer/loop/job_data.h"

namespace tandem::loop {

class TextData : public JobData {
 public:
  static absl::StatusOr<std::unique_ptr<TextData>> Read(const Job& job);
  explicit TextData(data::Text text) : text_(std::move(text)) {}

  const data::Text& text() const { return text_; }

  std::string Description() const override;
  std::string Symbols() const override { return text_.vocabulary.Symbols(); }
  int64_t num_embeddings() const override { return text_.vocabulary.size(); }
  std::unique_ptr<Task> MakeTask(const Job& job, const TaskEnvironment& environment) const override;
  std::vector<ReferenceColumn> References() const override;

 private:
  const data::Text text_;
};

}  // namespace tandem::loop
