#include "trainer/models/gpt_decoder.h"

#include <algorithm>
#include <utility>

namespace tandem::models {

GptDecoder::GptDecoder(const Gpt* gpt, Variable tokens, Stream* stream)
    : gpt_(gpt), tokens_(std::move(tokens)), stream_(stream), caches_(gpt->MakeCaches()) {}

Tensor GptDecoder::Feed(absl::Span<const int64_t> symbols) {
  TANDEM_CHECK(!symbols.empty());
  const auto count = static_cast<int64_t>(symbols.size());
  context_.insert(context_.end(), symbols.begin(), symbols.end());
  int64_t cached = static_cast<int64_t>(context_.size()) - count;
  const int64_t max_length = gpt_->options().max_length;
  if (static_cast<int64_t>(context_.size()) > max_length) {
    const int64_t kept = std::clamp(count, max_length / 2, max_length);
    context_.erase(context_.begin(), context_.end() - kept);
    for (nn::KeyValueCache& cache : caches_) cache.Clear();
    cached = 0;
  }
  const std::vector<int64_t> next(context_.begin() + cached, context_.end());
  Context context({.stream = stream_, .training = false});
  const Tensor hidden = gpt_->Extend(context, tokens_, Tensor::FromVector(next), caches_).value();
  const Variable last = Variable::Constant(hidden.Rows(hidden.dim(0) - 1, hidden.dim(0)));
  return gpt_->Logits(context, tokens_, last)
      .value()
      .Reshape(Shape{gpt_->options().vocabulary_size});
}

}  // namespace tandem::models
