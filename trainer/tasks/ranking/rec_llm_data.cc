#include "trainer/tasks/ranking/rec_llm_data.h"

#include <set>
#include <utility>

#include "kernels/base/random.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"
#include "proto/job.pb.h"
#include "trainer/data/text/text_floors.h"
#include "trainer/data/titles.h"

namespace tandem::tasks {

namespace {

std::u32string CharactersOf(std::string_view title) {
  std::u32string characters;
  while (!title.empty()) {
    const Utf8Symbol next = DecodeUtf8(title);  // the reader of titles has checked them
    characters.push_back(next.symbol);
    title.remove_prefix(static_cast<size_t>(next.num_bytes));
  }
  return characters;
}

// The characters that occur, in the order of their code points.
data::Vocabulary VocabularyOf(const SequenceData& data) {
  std::set<char32_t> found;
  for (uint64_t item = 1; item <= data.num_items(); ++item) {
    for (const char32_t character : CharactersOf(data.ItemTitle(item))) found.insert(character);
  }
  return data::Vocabulary(std::u32string(found.begin(), found.end()));
}

}  // namespace

absl::StatusOr<RecLlmFiles> RecLlmData::ReadFiles(const Job& job, DataUse use,
                                                  const SavedItems& saved) {
  ASSIGN_OR_RETURN(SequenceFiles log, SequenceData::Read(job, use, saved));
  return RecLlmFiles{.log = std::move(log),
                     .unit = job.data().text(),
                     .title_buckets = static_cast<uint64_t>(job.model().rec_llm().title_buckets()),
                     .stream = {.max_length = job.model().rec_llm().max_length(),
                                .titles_per_history = job.model().rec_llm().titles_per_history()}};
}

RecLlmData::RecLlmData(RecLlmFiles files)
    : SequenceData(std::move(files.log)),
      is_bytes_(files.unit == Data::BYTES),
      stream_(files.stream) {
  if (!is_bytes_) vocabulary_ = VocabularyOf(*this);
  symbols_.Append({});
  words_.Append({});
  std::vector<uint64_t> row;
  for (uint64_t item = 1; item <= num_items(); ++item) {
    const std::string title(ItemTitle(item));
    row.clear();
    if (is_bytes_) {
      for (const char byte : title) row.push_back(static_cast<unsigned char>(byte));
    } else {
      for (const char32_t character : CharactersOf(title))
        row.push_back(static_cast<uint64_t>(*vocabulary_.Find(character)));
    }
    symbols_.Append(row);
    row.clear();
    for (const std::string& word : data::WordsOf(title))
      row.push_back(StableHash(word) % files.title_buckets);
    words_.Append(row);
  }
}

std::vector<ReferenceColumn> RecLlmData::References() const {
  std::vector<ReferenceColumn> columns = SequenceData::References();
  if (stream_.titles_per_history == 0) return columns;
  data::BigramCounts counts(vocabulary_size());
  for (uint64_t item = 1; item <= num_items(); ++item) {
    const absl::Span<const uint64_t> title = symbols_.row(static_cast<int64_t>(item));
    for (size_t i = 1; i < title.size(); ++i) {
      counts.Add(static_cast<int64_t>(title[i - 1]), static_cast<int64_t>(title[i]),
                 training_counts()[item]);
    }
  }
  const data::ItemStream stream(&symbols_, stream_);
  double nats = 0, bytes = 0;
  for (int64_t user = 0; user < interactions().items.size(); ++user) {
    const absl::Span<const uint64_t> items = interactions().items.row(user);
    if (items.size() < data::kMinEvaluationItems) continue;
    data::Jagged one;
    stream.Append(items.first(items.size() - 1), &one);
    const data::StreamBatch batch = data::PackStreams(std::move(one), 0, stream_.max_length);
    for (size_t i = 0; i < batch.text_places.size(); ++i) {
      nats += counts.Loss(static_cast<int64_t>(batch.places[batch.text_places[i]]),
                          batch.text_targets[i]);
      bytes += static_cast<double>(BytesOf(batch.text_targets[i]));
    }
  }
  if (bytes > 0) columns.push_back({"add-one bigram", {{"text_loss", nats / bytes}}});
  return columns;
}

int64_t RecLlmData::BytesOf(int64_t symbol) const {
  if (is_bytes_) return 1;
  const std::vector<int64_t> one{symbol};
  return static_cast<int64_t>(vocabulary_.Decode(one).size());
}

}  // namespace tandem::tasks
