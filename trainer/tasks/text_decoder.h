// A model that goes on with a text, for `tandem generate`.
// Thread rule: one thread per decoder.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/types/span.h"
#include "trainer/autograd/parameter.h"

namespace tandem {
class Job;  // proto/job.pb.h
}

namespace tandem::tasks {

class TextDecoder {
 public:
  virtual ~TextDecoder() = default;
  // Feeds the next symbols (a prompt, then one at a time) and returns the logits [V] of the symbol
  // after them. REQUIRES: `symbols` is not empty; the parameters have their values.
  virtual Tensor Feed(absl::Span<const int64_t> symbols) = 0;
};

struct DecoderArgs {
  const Job& job;  // resolved
  int64_t vocabulary_size = 0;
  // The rows of the whole vocabulary in order if servers held them, else undefined.
  Variable rows;
  // Receives the model's parameters, which the caller fills before the first Feed.
  // REQUIRES: the parameters and the stream outlive the decoder.
  ParameterSet& parameters;
  Stream* stream = nullptr;
};

using MakeTextDecoder = std::unique_ptr<TextDecoder> (*)(const DecoderArgs& args);

}  // namespace tandem::tasks
