// A text as numbered symbols, for language models: the first part trains, the rest validates, and the vocabulary is what
// the training part holds, so that nothing is known of the validation part.
// Thread rule: a value; read it from many threads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/base/checked_file.h"
#include "trainer/data/vocabulary.h"

namespace tandem::data {

struct Text {
  Vocabulary vocabulary;  // sorted by code point
  std::vector<int32_t> train, valid;
  int64_t num_unseen = 0;  // symbols of the validation part that the training part lacks; left out of `valid`
  FileDigest source = {};  // of the file
};

// The first floor(train_fraction n) of the file's n symbols (code points; see SymbolReader) train.
// DataLoss, naming path, line and byte offset, where it is not UTF-8, and where a part is too short for one window of
// max_length symbols and the next. REQUIRES: 0 < train_fraction < 1.
absl::StatusOr<Text> ReadText(const std::string& path, double train_fraction, int64_t max_length);

}  // namespace tandem::data
