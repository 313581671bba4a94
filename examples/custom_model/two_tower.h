// A recommender of two towers (Covington et al. 2016, "Deep Neural Networks for YouTube
// Recommendations"): a user is the mean of his last items' rows, beside the row of the newest. A
// linear layer on each side turns users and items into vectors. The score of an item is the product
// of the two. The item rows live on parameter servers.
// Thread rule: that of Task.
#pragma once

#include "trainer/job/custom_options.h"
#include "trainer/nn/layers.h"
#include "trainer/tasks/ranking/ranking_task.h"

class TwoTower : public tandem::tasks::RankingTask {
 public:
  struct Settings {
    int dim = 0, negatives = 0, max_length = 0;
  };
  // The options of model { custom { name: "two_tower" options { ... } } }.
  static Settings Options(tandem::job::CustomOptions& options);

  TwoTower(const tandem::Job& job, const tandem::tasks::SequenceData* data,
           const tandem::tasks::TaskEnvironment& environment);

 protected:
  tandem::Variable BatchLoss(tandem::Context& context, const tandem::Variable& items,
                             const tandem::models::SequenceInput& batch,
                             const tandem::Variable& hidden) const override;
  tandem::Tensor UserVectors(tandem::Context& context, const tandem::Variable& items,
                             const tandem::models::SequenceInput& batch,
                             const tandem::Variable& hidden) const override;
  tandem::Tensor ItemVectors(tandem::Context& context,
                             const tandem::Variable& items) const override;

 private:
  static Sampling SamplingOf(const Settings& settings);
  // The vectors [T, dim] of users as of each of their items.
  tandem::Variable Users(tandem::Context& context, const tandem::Variable& items,
                         const tandem::models::SequenceInput& batch) const;

  tandem::nn::Linear user_tower_, item_tower_;
};
