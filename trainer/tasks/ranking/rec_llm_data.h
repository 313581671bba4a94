// The data of a recommender that reads: an interaction log, and its items' titles as symbols and as
// hashed words.
// Thread rule: const methods from any thread.
#pragma once

#include <string>
#include <vector>

#include "trainer/data/item_stream.h"
#include "trainer/data/jagged.h"
#include "trainer/data/text/vocabulary.h"
#include "trainer/tasks/ranking/sequence_data.h"

namespace tandem::tasks {

struct RecLlmFiles {
  SequenceFiles log;
  Data::TextUnit unit = Data::BYTES;
  uint64_t title_buckets = 1;
  data::ItemStream::Options stream = {};
};

class RecLlmData : public SequenceData {
 public:
  static absl::StatusOr<RecLlmFiles> ReadFiles(const Job& job, DataUse use,
                                               const SavedItems& saved);
  explicit RecLlmData(RecLlmFiles files);

  // Row i holds the symbols of item i's title, or its words as numbers below title_buckets. Row 0
  // is empty.
  const data::Jagged& title_symbols() const { return symbols_; }
  const data::Jagged& title_words() const { return words_; }
  const data::ItemStream::Options& stream() const { return stream_; }
  // Without data.text CHARACTERS: the 256 bytes.
  int64_t vocabulary_size() const { return is_bytes_ ? 256 : vocabulary_.size(); }
  // The bytes of a symbol as UTF-8.
  int64_t BytesOf(int64_t symbol) const;

  // Always kept: the model must know which items training saw.
  std::string Catalogue() const override { return CatalogueLines(); }
  // Adds the text loss of an add-one bigram: counted over the titles of what training sees, for the
  // titles that the test streams show.
  std::vector<ReferenceColumn> References() const override;
  std::string Symbols() const override { return is_bytes_ ? "" : vocabulary_.Symbols(); }

 private:
  const bool is_bytes_;
  const data::ItemStream::Options stream_;
  data::Vocabulary vocabulary_;  // empty for bytes
  data::Jagged symbols_, words_;
};

}  // namespace tandem::tasks
