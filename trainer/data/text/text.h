// A text as numbered symbols, for language models. The first part trains, the rest validates. The
// vocabulary comes from the training part alone, so nothing of the validation part is known.
// Thread rule: a value; read it from many threads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/base/checked_file.h"
#include "trainer/data/text/vocabulary.h"

namespace tandem::data {

struct Text {
  Vocabulary vocabulary;  // sorted by code point
  std::vector<int32_t> train, valid;
  // Symbols of the validation part outside the vocabulary; left out of `valid`.
  int64_t num_unseen = 0;
  FileDigest source = {};  // the file's
};

// The first floor(train_fraction n) of the file's n symbols (code points; see SymbolReader) train.
// DataLoss, naming path, line and byte offset, if the file is not UTF-8. DataLoss if a part is too
// short for one window of max_length symbols and its next symbol.
// REQUIRES: 0 < train_fraction < 1.
absl::StatusOr<Text> ReadText(const std::string& path, double train_fraction, int64_t max_length);

}  // namespace tandem::data
