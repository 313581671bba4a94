// A recommender that reads, as a task: streams of titles and items, the RecLlm model with its two
// losses, and the ranking of the whole catalogue by the state after a user's last item.
// Thread rule: that of Task.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "proto/job.pb.h"
#include "trainer/data/item_stream.h"
#include "trainer/data/sequence_sampler.h"
#include "trainer/models/rec_llm.h"
#include "trainer/tasks/ranking/ranking_evaluation.h"
#include "trainer/tasks/ranking/rec_llm_data.h"
#include "trainer/tasks/ranking/rec_llm_rules.h"

namespace tandem::tasks {

struct RecLlmStep;

class RecLlmTask : public Task, private ItemScorer {
 public:
  using Data = RecLlmData;
  static constexpr bool kRanksItems = true;
  static absl::StatusOr<RecLlmFiles> ReadData(const Job& job, DataUse use,
                                              const SavedItems& saved) {
    return RecLlmData::ReadFiles(job, use, saved);
  }
  static void Check(const Job& job, Limits* limits);
  static void Resolve(Job* job);
  static void ClearTrainingFields(Model* model);
  static bool ReadsTitles(const Job& job) { return RecLlmTablesOf(job).title >= 0; }

  RecLlmTask(const Job& job, const RecLlmData* data, const TaskEnvironment& environment);

  int64_t steps_per_epoch() const override { return sampler_.steps_per_epoch(); }
  std::unique_ptr<StepInput> Prepare(int64_t step) const override;
  // The item loss, plus the text loss by the weight of each. Both are means when the loop has
  // divided the sum by the number of item targets.
  Variable LossSum(Context& context, const StepInput& input, int part,
                   absl::Span<const Variable> rows) const override;
  // Adds "text_loss", in nats per byte of the titles that the evaluated users' streams show.
  absl::StatusOr<Evaluation> Evaluate(EvaluationSplit split, const EvaluationArgs& args) override;
  ItemScorer* scorer() override { return this; }

 private:
  // The words of a list of items, as rows of the table "title".
  struct Words {
    std::vector<uint64_t> ids;      // distinct, ascending; empty if all rows are at hand
    Tensor offsets, places, scale;  // ItemSet
  };
  // The rows that all vectors are made of; undefined where the model has none.
  struct Rows {
    Variable items, words, symbols;
  };

  bool is_served() const { return tables_ != nullptr; }
  Words WordsOf(absl::Span<const uint64_t> items) const;
  static models::ItemSet ItemsOf(size_t size, const std::vector<int64_t>& with_row,
                                 const Words& words);
  // A share of a batch: its streams, and the next item of each item place.
  struct ItemStreams {
    data::StreamBatch batch;
    std::vector<uint64_t> targets;
  };
  ItemStreams StreamsOf(absl::Span<const int64_t> users, const data::BatchShare& share) const;
  // The step's negatives: items of random training occurrences.
  std::vector<uint64_t> Negatives(int64_t step) const;
  // The items of the parts and `used`, distinct and ascending.
  static std::vector<uint64_t> UsedItems(const std::vector<ItemStreams>& parts,
                                         std::vector<uint64_t> used);
  // Add to the input of a step: its item set with the rows to pull, its parts, its negatives.
  // `place_of` gives an item's place in the set.
  void TakeItems(int64_t step, absl::Span<const uint64_t> items, const Words& words,
                 RecLlmStep& input) const;
  void TakeParts(const std::vector<ItemStreams>& parts, absl::Span<const int64_t> place_of,
                 RecLlmStep& input) const;
  void TakeNegatives(const std::vector<uint64_t>& negatives, absl::Span<const int64_t> place_of,
                     RecLlmStep& input) const;
  // True if the step leaves the item's row out.
  bool DropsRow(int64_t step, uint64_t item) const;
  // The input of a batch whose items have the places `place_of` in the item set.
  models::RecLlmInput InputOf(const data::StreamBatch& batch,
                              absl::Span<const int64_t> place_of) const;
  double Flops(const data::StreamBatch& batch, int64_t num_items) const;
  absl::StatusOr<Rows> AllRows(const std::vector<uint64_t>& words, absl::Time deadline) const;

  // ItemScorer.
  absl::Status Begin(const EvaluationArgs& args) override;
  Tensor Scores(absl::Span<const absl::Span<const uint64_t>> histories,
                const EvaluationArgs& args) override;
  Tensor AllVectors() const override { return vectors_; }

  const Job job_;
  const RecLlm& options_;  // of job_
  const RecLlmData* const data_;
  const RecLlmTables table_of_;
  const data::SequenceSampler sampler_;
  const data::ItemStream stream_;
  const models::RecLlm model_;
  sparse::RemoteEmbedding* const tables_;
  comm::ProcessGroup* const group_;
  // Dense parameters; undefined if servers hold the rows or the model has none.
  Rows dense_;
  std::vector<uint64_t> trained_;  // items with a training occurrence: all candidates, ascending
  std::vector<uint64_t> occurrences_;  // of these items in training, each with all before it
  std::vector<int64_t> place_of_trained_, place_of_all_;  // by item
  Words trained_words_;
  const RankingEvaluation evaluation_;

  // An evaluation under way.
  Tensor vectors_;  // [num_items + 1, dim]
  Variable symbols_;
  double text_nats_ = 0, text_bytes_ = 0;  // of this replica's users
};

}  // namespace tandem::tasks
