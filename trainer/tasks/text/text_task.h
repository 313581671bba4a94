// Language modelling as a task: windows of a text, a decoder, and the mean loss over the whole
// validation part. Replicas share the validation windows.
// Thread rule: that of Task.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "proto/job.pb.h"
#include "trainer/data/batch_share.h"
#include "trainer/data/text/window_sampler.h"
#include "trainer/models/gpt.h"
#include "trainer/tasks/evaluation_blocks.h"
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
  parallel::ArrayType RowsOf(const StepInput& input, int part) const override;
  Variable StageRows(Context& context, const StepInput& input, int part,
                     absl::Span<const Variable> rows, int chunk,
                     const Variable& before) const override;
  Variable LossSum(Context& context, const StepInput& input, int part,
                   absl::Span<const Variable> rows, const Variable& hidden) const override;
  // Returns "loss", in nats per symbol. There is no test split. A line of the dump holds window,
  // symbols and mean loss, separated by tabs.
  absl::StatusOr<Evaluation> Evaluate(EvaluationSplit split, const EvaluationArgs& args) override;

  std::optional<LargestProduct> Bf16Product() const override;

 protected:
  static std::unique_ptr<TextDecoder> DecoderOf(const DecoderArgs& args,
                                                const models::GptOptions& options);

 private:
  class EvaluationStages;
  // Writes the summed losses of blocks of windows to their places in `losses`.
  absl::Status WindowLosses(absl::Span<const data::BatchShare> blocks, const Variable& rows,
                            const EvaluationArgs& args, std::vector<double>& losses) const;
  const models::GptOptions& options() const { return chunks_.front().options(); }

  const Job job_;
  const parallel::Pipeline& pipeline_;
  data::WindowSampler sampler_;
  const DType dtype_;  // of the rows between stages
  std::deque<models::Gpt> chunks_;
  sparse::RemoteEmbedding* tables_;
  const EvaluationRanks ranks_;
};

// The task of a kind of decoder. `Rules` has the functions of GptRules.
template <class Rules>
class TextTaskOf : public TextTask {
 public:
  static int NumLayers(const Model& model) { return Rules::NumLayers(model); }
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
