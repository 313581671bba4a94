// An evaluation by ranking: the whole catalogue, and fixed negatives, for every evaluated user.
// Replicas share the users. A model gives the scores (ItemScorer).
// Thread rule: that of Task.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "proto/job.pb.h"
#include "trainer/data/batch_share.h"
#include "trainer/data/sequence_sampler.h"
#include "trainer/job/limits.h"
#include "trainer/tasks/evaluation_blocks.h"
#include "trainer/tasks/ranking/sequence_data.h"
#include "trainer/tasks/task.h"

namespace tandem::tasks {

// Whole histories, oldest item first, and not empty.
using Histories = std::vector<absl::Span<const uint64_t>>;

// The model's side of a ranking.
class ItemScorer {
 public:
  virtual ~ItemScorer() = default;
  // Prepares to score: pulls rows and computes the items' vectors. Collective.
  virtual absl::Status Begin(const EvaluationArgs& args) = 0;
  // Gives, block by block, the scores f32 [histories, num_items + 1] of all items after each
  // history, in host memory. Column i is item i; column 0 means nothing. Of a pipeline only the
  // last stage has scores. REQUIRES: Begin has succeeded.
  using TakeScores = std::function<void(size_t block, const Tensor& scores)>;
  virtual absl::Status Score(absl::Span<const Histories> blocks, const EvaluationArgs& args,
                             const TakeScores& take) = 0;
  // The items' vectors [num_items + 1, dim]; row 0 means nothing. The score of an item is its
  // vector's product with the user's. REQUIRES: Begin has succeeded.
  virtual Tensor AllVectors() const = 0;
};

// The product of each user's vector [users, d] with each item's [items, d], [users, items] in the
// host's memory.
Tensor ScoresOf(Context& context, const Tensor& users, const Tensor& items);

// The users whose items are scored together. The size of a block never changes a score. A huge
// catalogue gets smaller blocks, so that the scores fit 1 GB.
int64_t UsersOfBlock(uint64_t num_items);

class RankingEvaluation {
 public:
  // The rules of a job whose best evaluation is chosen by a rank.
  static void Check(const Job& job, Limits* limits);
  static void Resolve(Job* job);

  // REQUIRES: all arguments outlive the evaluation.
  RankingEvaluation(const Job* job, const SequenceData* data, const data::SequenceSampler* sampler,
                    const EvaluationRanks& ranks)
      : job_(*job), data_(*data), sampler_(*sampler), ranks_(ranks) {}

  // Task::Evaluate. A line of the dump holds user, target, rank and the 20 best unseen items. Tabs
  // separate them; ids are as in the file.
  absl::StatusOr<Evaluation> Evaluate(EvaluationSplit split, const EvaluationArgs& args,
                                      ItemScorer& scorer) const;

 private:
  // Ranks of other replicas' users are 0 until they are summed.
  struct Ranks {
    data::Split split = data::Split::VALID;
    std::vector<double> full, sampled;  // one for each evaluated user
  };

  Histories HistoriesOf(const data::BatchShare& block, data::Split split) const;
  // Writes the ranks of a block of the evaluated users to their places.
  void RankUsers(const data::BatchShare& block, const Histories& histories, const Tensor& scores,
                 const EvaluationArgs& args, Ranks& ranks) const;
  std::string LineOf(data::Split split, int64_t user, double rank,
                     absl::Span<const float> scores) const;
  Evaluation Summary(const Ranks& ranks) const;

  const Job& job_;
  const SequenceData& data_;
  const data::SequenceSampler& sampler_;
  const EvaluationRanks ranks_;
};

}  // namespace tandem::tasks
