// The inputs of a recommender that reads: what the streams, the items and the negatives of a step
// or of an evaluation are for the model. Invariant: an input depends on (seed, step) and on the cut
// of the batch alone. Thread rule: const methods from any thread.
#pragma once

#include <memory>
#include <vector>

#include "proto/job.pb.h"
#include "trainer/comm/process_group.h"
#include "trainer/data/batch_share.h"
#include "trainer/data/item_stream.h"
#include "trainer/data/sequence_sampler.h"
#include "trainer/models/rec_llm.h"
#include "trainer/parallel/pipeline/pipeline.h"
#include "trainer/tasks/ranking/rec_llm_data.h"
#include "trainer/tasks/ranking/rec_llm_rules.h"

namespace tandem::tasks {

struct RecLlmStep : StepInput {
  models::ItemSet items;
  Tensor item_index;  // i64 [R]: rows of the dense item table; undefined if servers hold the rows
  std::vector<models::RecLlmInput> parts;
  double text_weight = 0;

  std::vector<Tensor*> Tensors() override {
    std::vector<Tensor*> all = items.Tensors();
    if (item_index.defined()) all.push_back(&item_index);
    for (models::RecLlmInput& part : parts) {
      const std::vector<Tensor*> more = part.Tensors();
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  }
};

class RecLlmInputs {
 public:
  // `group` cuts the batch. The first stage of `pipeline` needs the items of its streams, the last
  // one those that it compares with. REQUIRES: job, data and pipeline outlive the inputs.
  RecLlmInputs(const Job* job, const RecLlmData* data, const models::RecLlmOptions& model,
               const comm::ProcessGroup& group, const parallel::Pipeline& pipeline);

  const data::SequenceSampler& sampler() const { return sampler_; }
  int64_t steps_per_epoch() const { return sampler_.steps_per_epoch(); }
  // The items that training sees, ascending: all candidates.
  const std::vector<uint64_t>& trained() const { return trained_; }

  // The input of a step, which counts from 1 over all epochs.
  std::unique_ptr<RecLlmStep> Prepare(int64_t step) const;

  // The whole catalogue; item i has place i in the set.
  struct AllItems {
    models::ItemSet items;
    std::vector<uint64_t> word_ids;  // rows to pull
    Tensor item_index;               // i64 [trained]: rows of trained() in a dense item table
  };
  AllItems All() const;
  // The input of whole histories, over the places of All, and its streams.
  models::RecLlmInput OfHistories(absl::Span<const absl::Span<const uint64_t>> histories,
                                  data::StreamBatch* batch) const;

 private:
  // The words of a list of items, as rows of the table "title".
  struct Words {
    std::vector<uint64_t> ids;      // distinct, ascending; empty if all rows are at hand
    Tensor offsets, places, scale;  // ItemSet
  };
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
  // The items that this rank needs of the parts, and `used`, distinct and ascending.
  std::vector<uint64_t> UsedItems(const std::vector<ItemStreams>& parts,
                                  std::vector<uint64_t> used) const;
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
  // The operations of a part's products, forward and backward, with `num_items` vectors.
  double Flops(const data::StreamBatch& batch, int64_t num_items) const;

  const Job& job_;
  const RecLlm& options_;  // of job_
  const RecLlmData& data_;
  const RecLlmTables table_of_;
  const models::RecLlmOptions model_;
  const parallel::Pipeline& pipeline_;
  const bool served_;
  const int rank_, num_ranks_;
  const data::SequenceSampler sampler_;
  const data::ItemStream stream_;
  const std::vector<uint64_t> trained_;
  std::vector<uint64_t> occurrences_;  // of these items in training, each with all before it
  std::vector<int64_t> place_of_trained_, place_of_all_;  // by item
  const Words trained_words_;
};

}  // namespace tandem::tasks
