#include "trainer/tasks/text_data.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/count_text.h"
#include "kernels/base/status_macros.h"
#include "trainer/data/floors.h"
#include "trainer/tasks/text_task.h"

namespace tandem::tasks {

absl::StatusOr<std::unique_ptr<TextData>> TextData::Read(const Job& job) {
  const int64_t max_length = job.model().gpt().max_length();
  ASSIGN_OR_RETURN(data::Text text,
                   data::ReadText(job.data().path(), job.data().train_fraction(), max_length));
  return std::make_unique<TextData>(std::move(text), job.data().path(), max_length);
}

std::string TextData::Description() const {
  std::string text =
      absl::StrCat(CountText(static_cast<double>(text_.train.size())), " symbols to train on, ",
                   CountText(static_cast<double>(text_.valid.size())),
                   " to validate, vocabulary of ", text_.vocabulary.size());
  if (text_.num_unseen > 0) {
    absl::StrAppend(&text, " (", CountText(static_cast<double>(text_.num_unseen)),
                    " validation symbols that it lacks are left out)");
  }
  const int64_t rest = (static_cast<int64_t>(text_.valid.size()) - 1) % max_length_;
  if (rest > 0)
    absl::StrAppend(&text, ", of which the last ", rest, " fill no window and are left out");
  return text;
}

std::unique_ptr<Task> TextData::MakeTask(const Job& job, const TaskEnvironment& environment) const {
  return std::make_unique<TextTask>(job, this, environment);
}

std::vector<ReferenceColumn> TextData::References() const {
  return {{"unigram", {{"loss", data::UnigramLoss(text_)}}},
          {"add-one bigram", {{"loss", data::BigramLoss(text_)}}}};
}

}  // namespace tandem::tasks
