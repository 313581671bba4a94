#include "trainer/bench/data.h"

#include "kernels/base/random.h"
#include "kernels/base/status_macros.h"
#include "trainer/job/job_config.h"
#include "trainer/tasks/ranking/sequence_rec_task.h"
#include "trainer/tasks/text/text_task.h"

namespace tandem::bench {

namespace {

constexpr char kGpt[] = R"(
name: "gpt" data { path: "random" }
model { gpt { layers: 4 dim: 256 heads: 4 max_length: 256 norm_bias: true qkv_bias: true linear_bias: true } }
optimizer { kind: ADAMW weight_decay: 0.01 decay_all: true }
train { batch_size: 8 max_steps: 1 }
)";
constexpr int64_t kGptVocabulary = 8192, kGptSymbols = 200'000;

// GPT-2 with 124M parameters (Radford et al. 2019). Its 50,257 symbols are padded to a multiple of
// 128.
constexpr char kGpt2[] = R"(
name: "gpt2" data { path: "random" }
model { gpt { layers: 12 dim: 768 heads: 12 max_length: 1024 activation: GELU_TANH norm_bias: true qkv_bias: true linear_bias: true
              tied_embeddings: true } }
optimizer { kind: ADAMW weight_decay: 0.01 decay_all: true }
train { batch_size: 16 max_steps: 1 }
)";
constexpr int64_t kGpt2Vocabulary = 50'304;

constexpr char kSasRec[] = R"(
name: "sasrec" data { path: "random" } placement: REPLICATED
model { sequence_rec { layers: 2 heads: 1 ffn_dim: 64 max_length: 200 activation: RELU dropout: 0.2 norm_epsilon: 1e-5 loss: BCE } }
tables { name: "item" dim: 64 }
train { batch_size: 128 max_steps: 1 }
)";
constexpr uint64_t kItems = 3416, kUsers = 512;
constexpr size_t kUserItems = 203;  // three of them are the two held out and the last target

constexpr char32_t kFirstSymbol = 0x20000;  // any character will do

data::Text RandomText(int64_t vocabulary_size, int64_t max_length) {
  std::u32string symbols;
  for (int64_t s = 0; s < vocabulary_size; ++s)
    symbols.push_back(kFirstSymbol + static_cast<char32_t>(s));
  data::Text text{
      .vocabulary = data::Vocabulary(symbols), .train = {}, .valid = {}, .num_unseen = 0};
  const RandomKey key{1, StableHash("bench text")};
  for (int64_t i = 0; i < kGptSymbols; ++i) {
    text.train.push_back(static_cast<int32_t>(
        RandomBelow(key, 0, static_cast<uint64_t>(i), static_cast<uint64_t>(vocabulary_size))));
  }
  text.valid.assign(text.train.begin(), text.train.begin() + max_length + 1);
  return text;
}

data::Interactions RandomLog() {
  data::Interactions log;
  log.num_items = kItems;
  const RandomKey key{1, StableHash("bench log")};
  for (uint64_t user = 1; user <= kUsers; ++user) {
    std::vector<uint64_t> items;
    for (size_t i = 0; i < kUserItems; ++i) items.push_back(1 + RandomBelow(key, user, i, kItems));
    log.users.push_back(user);
    log.items.Append(items);
  }
  return log;
}

}  // namespace

absl::StatusOr<BenchJob> MakeBenchJob(const std::string& preset,
                                      const std::vector<std::string>& sets,
                                      const tasks::Kinds& kinds) {
  BenchJob bench;
  const LoadOptions load{.models = kinds.models(), .num_trainers = 1};
  if (preset == "gpt" || preset == "gpt2") {
    const bool small = preset == "gpt";
    ASSIGN_OR_RETURN(bench.job, ParseJob(small ? kGpt : kGpt2, "preset " + preset, sets, load));
    bench.data = std::make_unique<tasks::DataOf<tasks::GptTask>>(tasks::TextFile{RandomText(
        small ? kGptVocabulary : kGpt2Vocabulary, bench.job.model().gpt().max_length())});
  } else if (preset == "sasrec") {
    ASSIGN_OR_RETURN(bench.job, ParseJob(kSasRec, "preset sasrec", sets, load));
    bench.data = std::make_unique<tasks::DataOf<tasks::SequenceRecTask>>(
        tasks::SequenceFiles{.interactions = RandomLog(), .path = "random"});
  } else {
    ASSIGN_OR_RETURN(bench.job, LoadJob(preset, sets, load));
    ASSIGN_OR_RETURN(bench.data, kinds.ReadData(bench.job));
  }
  return bench;
}

}  // namespace tandem::bench
