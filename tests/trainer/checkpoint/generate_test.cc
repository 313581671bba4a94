// `tandem generate` on a run's checkpoint: the decoder's text, equal for equal seeds, and exit
// codes that tell whose fault an error is.
#include <algorithm>
#include <cmath>

#include "tests/trainer/checkpoint/small_checkpoint.h"
#include "tests/trainer/checkpoint/spoiled_checkpoint.h"
#include "tests/trainer/our_kinds.h"
#include "trainer/cli/commands.h"
#include "trainer/comm/host/thread_group.h"
#include "trainer/data/text/vocabulary.h"
#include "trainer/job/job_config.h"
#include "trainer/loop/train_loop.h"
#include "trainer/models/gpt_decoder.h"
#include "trainer/sparse/remote_embedding.h"

namespace tandem {
namespace {

constexpr char kJob[] = R"(
seed: 3
model { gpt { max_length: 8 layers: 1 heads: 2 dim: 16 } }
optimizer { kind: ADAMW learning_rate: 1e-2 }
train { batch_size: 8 max_steps: 60 eval_every_steps: 60 }
)";

class GenerateTest : public testing::Test {
 protected:
  void Train(const std::string& placement, const std::vector<std::string>& more = {}) {
    std::string text;
    const char* words[] = {"the cat ", "sat on ", "a mat. ", "so did ", "the dog "};
    for (uint64_t i = 0; i < 300; ++i) text += words[RandomBelow({1, 2}, 0, i, 5)];
    std::vector<std::string> sets{"data.path=" + folder_.Write("text", text),
                                  "placement=" + placement};
    sets.insert(sets.end(), more.begin(), more.end());
    const auto job = LoadJob(folder_.Write("job.textproto", kJob), sets,
                             {.models = OurKinds().models(), .num_trainers = 1});
    ASSERT_TRUE(job.ok()) << job.status();
    const auto data = OurKinds().ReadData(*job);
    ASSERT_TRUE(data.ok()) << data.status();
    const auto output = report::RunOutput::Create(folder_ / "run", report::LogFormat::JSON);
    ASSERT_TRUE(output.ok()) << output.status();
    ps::TableHost host(1);
    ps::LocalClient client(host, /*trainer=*/0, /*num_trainers=*/1);
    const auto groups = comm::ThreadGroup::Create(1, "dp");
    const auto summary = loop::RunReplica(
        *job, **data,
        {.group = groups[0].get(), .clients = ps::ClientsOf(client), .output = output->get()});
    ASSERT_TRUE(summary.ok()) << summary.status();
  }

  cli::GenerateOptions Options() const {
    return {.checkpoint = folder_ / "run/checkpoints", .prompt = "the ", .length = 40};
  }

  // Returns the printed text without its final line end.
  std::string Generate(const cli::GenerateOptions& options) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    code_ = cli::Generate(options, OurKinds());
    errors_ = testing::internal::GetCapturedStderr();
    std::string text = testing::internal::GetCapturedStdout();
    if (!text.empty()) text.pop_back();
    return text;
  }

  const support::TempFolder folder_;
  int code_ = 0;
  std::string errors_;
};

// Returns the likeliest symbol again and again, computed from the checkpoint's parts.
std::string GreedyText(const std::string& folder, const std::string& prompt, int length) {
  const auto saved = checkpoint::OpenCheckpoint(folder, checkpoint::Choice::BEST);
  const Job& job = saved->manifest.job();
  const auto vocabulary = data::Vocabulary::FromSymbols(saved->manifest.symbols());
  ParameterSet parameters(1, DType::F32);
  const models::Gpt gpt(tasks::GptRules::OptionsOf(job, vocabulary->size()), parameters);
  EXPECT_TRUE(checkpoint::LoadParameters(*saved, parameters).ok());
  ThreadPool pool(1);
  Stream stream(&pool);
  Variable rows;
  ps::TableHost host(1);
  ps::LocalClient client(host, 0, 1);
  if (job.placement() == Job::PS) {
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    EXPECT_TRUE(client.CreateTables({saved->manifest.tables(0)}, absl::Seconds(30)).ok());
    EXPECT_TRUE(checkpoint::LoadRows(*saved, client, deadline).ok());
    std::vector<uint64_t> ids;
    for (int64_t symbol = 0; symbol < vocabulary->size(); ++symbol)
      ids.push_back(static_cast<uint64_t>(symbol + 1));
    sparse::RemoteEmbedding tables(&client, {{1, 16}}, &stream);
    rows = Variable::Constant((*tables.Pull(0, /*create=*/false, {ids})->Await(deadline))[0]);
  }
  models::GptDecoder decoder(&gpt, rows, &stream);
  std::string text = prompt;
  std::vector<int64_t> next = vocabulary->Encode(prompt)->numbers;
  for (int i = 0; i < length; ++i) {
    const Tensor logits = decoder.Feed(next);
    const float* first = logits.data<float>();
    next = {std::max_element(first, first + vocabulary->size()) - first};
    text += vocabulary->Decode(next);
  }
  return text;
}

TEST_F(GenerateTest, GreedyTextIsThatOfTheDecoderInBothPlacements) {
  for (const char* placement : {"REPLICATED", "PS"}) {
    Train(placement);
    cli::GenerateOptions options = Options();
    options.temperature = 0;
    const std::string text = Generate(options);
    EXPECT_EQ(code_, 0) << errors_;
    EXPECT_EQ(text, GreedyText(options.checkpoint, "the ", 40)) << placement;
    EXPECT_NE(text.find_first_not_of(' ', 4), std::string::npos)
        << "a model that learned nothing shows nothing";
  }
}

TEST_F(GenerateTest, SeedDecidesTheText) {
  Train("REPLICATED");
  cli::GenerateOptions options = Options();
  const std::string text = Generate(options);
  EXPECT_EQ(text.size(), 44u) << text;
  EXPECT_EQ(Generate(options), text);
  options.seed = 2;
  EXPECT_NE(Generate(options), text);
}

TEST_F(GenerateTest, WithoutPromptAModelThatKnowsNoLineEndBeginsWithItsFirstSymbol) {
  Train("REPLICATED");
  cli::GenerateOptions options = Options();
  options.prompt.reset();
  options.length = 0;
  EXPECT_EQ(Generate(options), " ");  // the least code point of the text
  EXPECT_EQ(code_, 0) << errors_;
}

TEST_F(GenerateTest, WrongFlagEndsWithTwoAndIsNamed) {
  Train("REPLICATED");
  const auto expect_refused = [&](const cli::GenerateOptions& options, const char* flag) {
    EXPECT_EQ(Generate(options), "");
    EXPECT_EQ(code_, 2) << flag;
    EXPECT_NE(errors_.find(flag), std::string::npos) << errors_;
  };
  const auto with = [&](auto change) {
    cli::GenerateOptions options = Options();
    change(options);
    return options;
  };
  expect_refused(with([](auto& o) { o.length = -1; }), "--length");
  expect_refused(with([](auto& o) { o.temperature = -0.1; }), "--temperature");
  expect_refused(with([](auto& o) { o.temperature = std::nan(""); }), "--temperature");
  expect_refused(with([](auto& o) { o.top_k = -1; }), "--top-k");
  expect_refused(with([](auto& o) { o.top_p = 0; }), "--top-p");
  expect_refused(with([](auto& o) { o.top_p = 1.1; }), "--top-p");
  expect_refused(with([](auto& o) { o.prompt = "XYZ"; }), "--prompt");
  expect_refused(with([](auto& o) { o.prompt = ""; }), "--prompt");
  expect_refused(with([](auto& o) { o.prompt = "the \xff"; }), "--prompt");
}

TEST_F(GenerateTest, WeightsThatAreNotFiniteEndWithFourNamingTheTensorOrTheRow) {
  for (const char* placement : {"REPLICATED", "PS"}) {
    Train(placement);
    const std::string saved =
        checkpoint::OpenCheckpoint(Options().checkpoint, checkpoint::Choice::BEST)->folder;
    const bool served = placement == std::string("PS");
    if (served)
      checkpoint::SpoilRow(saved);
    else
      checkpoint::SpoilTensor(saved, "blocks.0.attention.qkv.weight");
    EXPECT_EQ(Generate(Options()), "");
    EXPECT_EQ(code_, 4);
    const char* word = served ? "has a weight or optimizer state that is not finite"
                              : "parameter blocks.0.attention.qkv.weight is not finite";
    EXPECT_NE(errors_.find(word), std::string::npos) << errors_;
  }
}

TEST_F(GenerateTest, LogitsOfFiniteWeightsThatAreNotFiniteEndWithSeventy) {
  Train("REPLICATED", {"train.non_finite=SKIP", "optimizer.learning_rate=1e15", "train.max_steps=1",
                       "checkpoint.every_steps=1"});
  Generate(Options());
  EXPECT_EQ(code_, 70);
  EXPECT_NE(errors_.find("a logit that is not finite"), std::string::npos) << errors_;
}

using GenerateFromRecommenderTest = checkpoint::CheckpointTest;

TEST_F(GenerateFromRecommenderTest, CheckpointOfAnotherModelEndsWithFour) {
  TrainAndWrite(1);
  testing::internal::CaptureStderr();
  EXPECT_EQ(cli::Generate({.checkpoint = folder_.path(), .prompt = "a"}, OurKinds()), 4);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("no language model"), std::string::npos);
  EXPECT_EQ(cli::Generate({.checkpoint = folder_ / "nowhere", .prompt = "a"}, OurKinds()), 4);
}

}  // namespace
}  // namespace tandem
