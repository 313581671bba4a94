// The operations that a step claims to need are those of its products, as their spans count them.
#include <gtest/gtest.h>
#include <string>

#include "tests/trainer/our_kinds.h"
#include "trainer/autograd/engine.h"
#include "trainer/comm/host/thread_group.h"
#include "trainer/data/synthetic.h"
#include "trainer/job/job_config.h"
#include "trainer/tasks/ranking/sequence_data.h"
#include "trainer/tasks/text/text_data.h"

namespace tandem::tasks {
namespace {

constexpr char kLanguageJob[] = R"(
data { path: "text" }
placement: REPLICATED
model { gpt { max_length: 8 layers: 2 heads: 2 dim: 12 ffn_dim: 20 qkv_bias: true linear_bias: true } }
train { batch_size: 6 accumulate: 2 max_steps: 1 }
)";

constexpr char kSequenceJob[] = R"(
data { path: "log" }
placement: REPLICATED
model { sequence_rec { max_length: 8 layers: 3 heads: 2 ffn_dim: 20 num_negatives: 7 } }
tables { name: "item" dim: 12 }
train { batch_size: 10 accumulate: 2 max_steps: 1 }
)";

// Counts the flops of products in layers and the head, plus attention. Attention counts as three
// times its forward pass, because its backward pass computes the scores again.
double CountedFlops(const char* text, const JobData& data, const std::vector<std::string>& sets,
                    double* said) {
  const auto job = ParseJob(text, "job", sets, {.models = OurKinds().models(), .num_trainers = 1});
  EXPECT_TRUE(job.ok()) << job.status();
  ThreadPool pool(2);
  Stream stream(&pool);
  ParameterSet parameters(1, DType::F32);
  const auto groups = comm::ThreadGroup::Create(1, "dp");
  const auto task =
      data.MakeTask(*job, {.parameters = &parameters, .tables = nullptr, .group = groups[0].get()});
  const auto input = task->Prepare(1);
  *said = input->flops;
  Tracer tracer;
  stream.set_tracer(&tracer);
  Context context({.stream = &stream, .seed = 1, .step = 1});
  for (int part = 0; part < 2; ++part)
    Backward(context, task->WholeLossSum(context, *input, part, {}));
  double flops = 0;
  for (const Span& span : tracer.Take()) {
    if (span.kind == SpanKind::GEMM) flops += span.flops;
    if (std::string(span.name) == "attention_forward") flops += 3 * span.flops;
  }
  return flops;
}

void ExpectCounted(const char* text, const JobData& data, const std::vector<std::string>& sets) {
  double said = 0;
  const double counted = CountedFlops(text, data, sets, &said);
  EXPECT_GT(counted, 1e5);
  EXPECT_NEAR(said / counted, 1, 1e-12);
}

TEST(StepFlopsTest, OfALanguageModel) {
  data::Text text;
  text.vocabulary = data::Vocabulary(U"abcdefg");
  for (int i = 0; i < 200; ++i) text.train.push_back(i % 7);
  text.valid.assign(text.train.begin(), text.train.begin() + 50);
  const GptData data({std::move(text)});
  ExpectCounted(kLanguageJob, data, {});
  ExpectCounted(kLanguageJob, data, {"model.gpt.tied_embeddings=true"});
}

TEST(StepFlopsTest, OfSequencesOfManyLengths) {
  const SequenceRecData data(
      {.interactions =
           data::Generate({.seed = 5, .users = 30, .items = 30, .min_length = 3, .max_length = 12})
               .log,
       .path = "log"});
  for (const char* loss : {"BCE", "SAMPLED_SOFTMAX", "FULL_SOFTMAX"}) {
    SCOPED_TRACE(loss);
    ExpectCounted(kSequenceJob, data, {std::string("model.sequence_rec.loss=") + loss});
  }
}

}  // namespace
}  // namespace tandem::tasks
