#include "trainer/tasks/rec_llm_data.h"

#include <set>
#include <utility>

#include "kernels/base/random.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"
#include "proto/job.pb.h"
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
                     .title_buckets = static_cast<uint64_t>(job.model().rec_llm().title_buckets())};
}

RecLlmData::RecLlmData(RecLlmFiles files)
    : SequenceData(std::move(files.log)), is_bytes_(files.unit == Data::BYTES) {
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

int64_t RecLlmData::BytesOf(int64_t symbol) const {
  if (is_bytes_) return 1;
  const std::vector<int64_t> one{symbol};
  return static_cast<int64_t>(vocabulary_.Decode(one).size());
}

}  // namespace tandem::tasks
