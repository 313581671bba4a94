#include "trainer/tasks/text/text_data.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/count_text.h"
#include "kernels/base/status_macros.h"
#include "trainer/data/text/text_floors.h"
#include "trainer/job/model_rules.h"

namespace tandem::tasks {

void TextData::Check(const Job& job, Limits* limits) {
  const std::string kind = job::KindOf(job.model());
  const Data& data = job.data();
  if (data.format() != DATA_FORMAT_UNSPECIFIED && data.format() != TEXT)
    limits->Refuse("data.format", DataFormat_Name(data.format()), absl::StrCat("TEXT with ", kind));
  if (data.ids() == Data::MAP) limits->Refuse("data.ids", "MAP", absl::StrCat("DENSE with ", kind));
}

void TextData::Resolve(Job* job) {
  Data& data = *job->mutable_data();
  if (data.format() == DATA_FORMAT_UNSPECIFIED) data.set_format(TEXT);
  if (!data.has_train_fraction()) data.set_train_fraction(0.9);
}

absl::StatusOr<TextFile> TextData::Read(const Job& job, int64_t max_length) {
  const Data& data = job.data();
  ASSIGN_OR_RETURN(data::Text text, data::ReadText(data.path(), data.train_fraction(), max_length));
  return TextFile{std::move(text), data.path(), max_length};
}

std::string TextData::Description() const {
  std::string text = absl::StrCat(CountText(static_cast<double>(file_.text.train.size())),
                                  " symbols to train on, ",
                                  CountText(static_cast<double>(file_.text.valid.size())),
                                  " to validate, vocabulary of ", file_.text.vocabulary.size());
  if (file_.text.num_unseen > 0) {
    absl::StrAppend(&text, " (", CountText(static_cast<double>(file_.text.num_unseen)),
                    " validation symbols that it lacks are left out)");
  }
  const int64_t rest = (static_cast<int64_t>(file_.text.valid.size()) - 1) % file_.max_length;
  if (rest > 0)
    absl::StrAppend(&text, ", of which the last ", rest, " fill no window and are left out");
  return text;
}

std::vector<ReferenceColumn> TextData::References() const {
  return {{"unigram", {{"loss", data::UnigramLoss(file_.text)}}},
          {"add-one bigram", {{"loss", data::BigramLoss(file_.text)}}}};
}

}  // namespace tandem::tasks
