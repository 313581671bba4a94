// Language modelling as a task: windows of a text, a decoder, and the mean loss over the whole
// validation part. Replicas share the validation windows.
// Thread rule: that of Task.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "proto/job.pb.h"
#include "trainer/data/batch_share.h"
#include "trainer/data/text/window_sampler.h"
#include "trainer/models/gpt.h"
#include "trainer/tasks/text/gpt_rules.h"
#include "trainer/tasks/text/llama_rules.h"
#include "trainer/tasks/text/text_data.h"

namespace tandem::tasks {

class TextTask : public Task {
 public:
  using Data = TextData;
  static constexpr Job::Placement kOldPlacement = Job::REPLICATED;
  static constexpr bool kHasBf16 = true;
  static constexpr bool kIsCut = true;

  TextTask(const Job& job, const TextData* data, const TaskEnvironment& environment,
           const models::GptOptions& options);

  int64_t steps_per_epoch() const override { return sampler_.steps_per_epoch(); }
  std::unique_ptr<StepInput> Prepare(int64_t step) const override;
  Variable LossSum(Context& context, const StepInput& input, int part,
                   absl::Span<const Variable> rows) const override;
  // Returns "loss", in nats per symbol. There is no test split. A line of the dump holds window,
  // symbols and mean loss, separated by tabs.
  absl::StatusOr<Evaluation> Evaluate(EvaluationSplit split, const EvaluationArgs& args) override;

  std::optional<LargestProduct> Bf16Product() const override;

  const models::Gpt& model() const { return model_; }

 protected:
  static std::unique_ptr<TextDecoder> DecoderOf(const DecoderArgs& args,
                                                const models::GptOptions& options);

 private:
  // Writes the summed losses of a block of windows to their places in `losses`.
  void WindowLosses(const data::BatchShare& block, const Variable& rows, const EvaluationArgs& args,
                    std::vector<double>& losses) const;

  const Job job_;
  data::WindowSampler sampler_;
  models::Gpt model_;
  sparse::RemoteEmbedding* tables_;
  comm::ProcessGroup* group_;
};

// The task of a kind of decoder. `Rules` has the functions of GptRules.
template <class Rules>
class TextTaskOf : public TextTask {
 public:
  static absl::StatusOr<TextFile> ReadData(const Job& job, DataUse, const SavedItems&) {
    return TextData::Read(job, Rules::OptionsOf(job, 0).max_length);
  }
  static void Check(const Job& job, Limits* limits) { Rules::Check(job, limits); }
  static void Resolve(Job* job) { Rules::Resolve(job); }
  static void ClearTrainingFields(Model* model) { Rules::ClearTrainingFields(model); }
  static std::unique_ptr<TextDecoder> MakeDecoder(const DecoderArgs& args) {
    return DecoderOf(args, Rules::OptionsOf(args.job, args.vocabulary_size));
  }

  TextTaskOf(const Job& job, const TextData* data, const TaskEnvironment& environment)
      : TextTask(job, data, environment, Rules::OptionsOf(job, data->num_embeddings())) {}
};

using GptTask = TextTaskOf<GptRules>;
using LlamaTask = TextTaskOf<LlamaRules>;

}  // namespace tandem::tasks
