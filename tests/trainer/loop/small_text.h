// A text of a small grammar's words, so that a small model finds something to learn.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/base/random.h"
#include "trainer/data/text/text.h"

namespace tandem::loop {

inline data::Text SmallText() {
  std::string text;
  const char* words[] = {"the cat ", "sat on ", "a mat. ", "so did ", "the dog "};
  for (uint64_t i = 0; i < 600; ++i) text += words[RandomBelow({1, 2}, 0, i, 5)];
  data::Text result;
  result.vocabulary = data::Vocabulary(U" .acdeghimnost");
  const auto encoded = result.vocabulary.Encode(text);
  for (int64_t symbol : encoded->numbers) result.train.push_back(static_cast<int32_t>(symbol));
  result.valid.assign(result.train.end() - 500, result.train.end());
  result.train.resize(result.train.size() - 500);
  return result;
}

}  // namespace tandem::loop
