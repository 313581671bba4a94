#include "trainer/data/sequence_sampler.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

namespace tandem::data {
namespace {

using Ids = std::vector<uint64_t>;
using Numbers = std::vector<int64_t>;

// Users 100, 101, ... with the given items.
Interactions Log(const std::vector<Ids>& rows, uint64_t num_items) {
  Interactions log;
  for (const Ids& row : rows) {
    log.users.push_back(100 + log.users.size());
    log.items.Append(row);
  }
  log.num_items = num_items;
  return log;
}

// 23 users of 3..14 items.
Interactions UnevenLog() {
  std::vector<Ids> rows;
  for (uint64_t u = 0; u < 23; ++u) {
    Ids row(3 + u % 12);
    for (uint64_t i = 0; i < row.size(); ++i) row[i] = 1 + (u * 7 + i * 3) % 40;
    rows.push_back(row);
  }
  return Log(rows, 40);
}

void Append(const SequenceBatch& part, SequenceBatch& whole) {
  EXPECT_EQ(part.first_sample, whole.num_samples());
  const int64_t shift = whole.num_tokens();
  const auto append = [](auto& to, const auto& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  for (int64_t b = 0; b < part.num_samples(); ++b)
    whole.offsets.push_back(part.offsets[b + 1] + shift);
  append(whole.users, part.users);
  append(whole.inputs, part.inputs);
  append(whole.targets, part.targets);
  append(whole.negatives, part.negatives);
  append(whole.positions, part.positions);
  append(whole.row_index, part.row_index);
}

void ExpectSame(const SequenceBatch& a, const SequenceBatch& b) {
  EXPECT_EQ(a.users, b.users);
  EXPECT_EQ(a.offsets, b.offsets);
  EXPECT_EQ(a.inputs, b.inputs);
  EXPECT_EQ(a.targets, b.targets);
  EXPECT_EQ(a.negatives, b.negatives);
  EXPECT_EQ(a.positions, b.positions);
  EXPECT_EQ(a.row_index, b.row_index);
}

TEST(SequenceSamplerTest, TrainingPairsLeaveOutTheLastTwoTargets) {
  const Interactions log = Log({{11, 12, 13, 14, 15, 16}}, 50);
  const SequenceSampler sampler(&log, {.seed = 1, .batch_size = 4, .max_length = 5});
  const SequenceBatch batch = sampler.TrainBatch(0, 0, 0, 1);
  EXPECT_EQ(batch.inputs, (Ids{11, 12, 13}));
  EXPECT_EQ(batch.targets, (Ids{12, 13, 14}));
  EXPECT_EQ(batch.positions, (Numbers{2, 3, 4}));
  EXPECT_EQ(batch.row_index, (Numbers{2, 3, 4}));
  EXPECT_EQ(batch.offsets, (Numbers{0, 3}));
  EXPECT_EQ(batch.global_samples, 1);
  EXPECT_EQ(batch.global_targets, 3);
}

TEST(SequenceSamplerTest, LongHistoriesKeepTheirLastItems) {
  const Interactions log = Log({{11, 12, 13, 14, 15, 16, 17}}, 50);
  const SequenceSampler sampler(&log, {.seed = 1, .batch_size = 4, .max_length = 3});
  const SequenceBatch train = sampler.TrainBatch(0, 0, 0, 1);
  EXPECT_EQ(train.inputs, (Ids{12, 13, 14}));
  EXPECT_EQ(train.targets, (Ids{13, 14, 15}));
  EXPECT_EQ(train.positions, (Numbers{0, 1, 2}));
  EXPECT_EQ(sampler.HistoryBatch({sampler.History(Split::VALID, 0)}).inputs, (Ids{13, 14, 15}));
  EXPECT_EQ(sampler.HistoryBatch({sampler.History(Split::TEST, 0)}).inputs, (Ids{14, 15, 16}));
}

TEST(SequenceSamplerTest, EvaluationTargetsAreTheLastTwoItems) {
  const Interactions log = Log({{11, 12, 13, 14, 15}}, 50);
  const SequenceSampler sampler(&log, {});
  EXPECT_EQ(sampler.EvalTarget(Split::VALID, 0), 14u);
  EXPECT_EQ(sampler.EvalTarget(Split::TEST, 0), 15u);
  EXPECT_EQ(sampler.History(Split::VALID, 0),
            absl::MakeConstSpan({uint64_t{11}, uint64_t{12}, uint64_t{13}}));
  EXPECT_EQ(sampler.History(Split::TEST, 0).back(), 14u);
  const SequenceBatch batch = sampler.HistoryBatch({sampler.History(Split::TEST, 0)});
  EXPECT_EQ(batch.inputs, (Ids{11, 12, 13, 14}));
  EXPECT_EQ(batch.positions, (Numbers{46, 47, 48, 49}));
  EXPECT_TRUE(batch.targets.empty());
  EXPECT_TRUE(batch.negatives.empty());
}

TEST(SequenceSamplerTest, ShortUsersAreLeftOutWhereTheyHaveNothing) {
  const Interactions log = Log({{1}, {1, 2}, {1, 2, 3}, {1, 2, 3, 4}}, 50);
  const SequenceSampler sampler(&log, {.seed = 1, .batch_size = 2, .max_length = 8});
  EXPECT_EQ(sampler.num_train_users(), 1);
  EXPECT_EQ(sampler.steps_per_epoch(), 1);
  EXPECT_EQ(sampler.TrainBatch(0, 0, 0, 1).users, (Numbers{3}));
  ASSERT_EQ(sampler.num_eval_users(), 2);
  EXPECT_EQ(sampler.EvalUser(0), 2);
  EXPECT_EQ(sampler.EvalUser(1), 3);
  EXPECT_EQ(sampler.History(Split::VALID, 2).size(), 1u);
  EXPECT_EQ(sampler.History(Split::TEST, 2).size(), 2u);
  const SequenceBatch batch =
      sampler.HistoryBatch({sampler.History(Split::VALID, 2), sampler.History(Split::VALID, 3)});
  EXPECT_EQ(batch.users, (Numbers{0, 1})) << "places of the histories";
  EXPECT_EQ(batch.inputs, (Ids{1, 1, 2}));
  EXPECT_EQ(batch.row_index, (Numbers{7, 14, 15}));
}

TEST(SequenceSamplerTest, NobodyToTrainMeansNoSteps) {
  const Interactions log = Log({{1, 2, 3}}, 3);
  EXPECT_EQ(SequenceSampler(&log, {}).steps_per_epoch(), 0);
}

TEST(SequenceSamplerTest, AnEpochVisitsEveryUserOnceAndKeepsTheShortLastBatch) {
  const Interactions log = UnevenLog();
  const SequenceSampler sampler(&log, {.seed = 3, .batch_size = 4, .max_length = 6});
  ASSERT_EQ(sampler.num_train_users(), 21);  // users 0 and 12 have 3 items
  ASSERT_EQ(sampler.steps_per_epoch(), 6);
  for (int64_t epoch : {0, 1, 5}) {
    std::multiset<int64_t> visited;
    for (int64_t b = 0; b < 6; ++b) {
      const SequenceBatch batch = sampler.TrainBatch(epoch, b, 0, 1);
      EXPECT_EQ(batch.num_samples(), b < 5 ? 4 : 1);
      EXPECT_EQ(batch.global_samples, batch.num_samples());
      EXPECT_EQ(batch.global_targets, batch.num_tokens());
      visited.insert(batch.users.begin(), batch.users.end());
    }
    EXPECT_EQ(visited.size(), 21u);
    EXPECT_EQ(std::set<int64_t>(visited.begin(), visited.end()).size(), 21u);
    EXPECT_EQ(visited.count(0) + visited.count(12), 0u);
  }
}

TEST(SequenceSamplerTest, OrderChangesWithEpochAndSeedOnly) {
  const Interactions log = UnevenLog();
  const auto order = [&](uint64_t seed, int64_t epoch) {
    return SequenceSampler(&log, {.seed = seed, .batch_size = 64}).TrainBatch(epoch, 0, 0, 1).users;
  };
  EXPECT_EQ(order(1, 2), order(1, 2));
  EXPECT_NE(order(1, 2), order(1, 3));
  EXPECT_NE(order(1, 2), order(1, 4));
  EXPECT_NE(order(1, 2), order(2, 2));
}

TEST(SequenceSamplerTest, EveryUserComesFirstEquallyOften) {
  std::vector<Ids> rows(5, Ids{1, 2, 3, 4});
  const Interactions log = Log(rows, 9);
  const SequenceSampler sampler(&log, {.seed = 8, .batch_size = 5});
  std::map<std::pair<int64_t, int64_t>, int> at;  // (place, user)
  constexpr int kEpochs = 5000;
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const SequenceBatch batch = sampler.TrainBatch(epoch, 0, 0, 1);
    for (int64_t place = 0; place < 5; ++place) ++at[{place, batch.users[place]}];
  }
  for (int64_t place = 0; place < 5; ++place) {
    for (int64_t user = 0; user < 5; ++user)
      EXPECT_NEAR((at[{place, user}]), kEpochs / 5, 150);  // sd 28
  }
}

TEST(SequenceSamplerTest, ReplicasAndPartsCutTheSameGlobalBatch) {
  const Interactions log = UnevenLog();
  for (const int batch_size : {1, 4, 9, 64}) {
    const SequenceSampler sampler(&log, {.seed = 5, .batch_size = batch_size, .max_length = 6});
    for (int64_t b = 0; b < sampler.steps_per_epoch(); ++b) {
      const SequenceBatch whole = sampler.TrainBatch(2, b, 0, 1);
      for (const int replicas : {1, 2, 3, 4, 7}) {
        for (const int parts : {1, 2, 3}) {
          SequenceBatch joined;
          for (int replica = 0; replica < replicas; ++replica) {
            for (int part = 0; part < parts; ++part) {
              const SequenceBatch share = sampler.TrainBatch(2, b, replica, replicas, part, parts);
              EXPECT_EQ(share.global_samples, whole.global_samples);
              EXPECT_EQ(share.global_targets, whole.global_targets);
              Append(share, joined);
            }
          }
          ExpectSame(joined, whole);
        }
      }
    }
  }
}

TEST(SequenceSamplerTest, ReplicaOfAnUnevenBatchBeginsAtTheFloor) {
  const Interactions log = Log(std::vector<Ids>(5, Ids{1, 2, 3, 4}), 9);
  const SequenceSampler sampler(&log, {.seed = 5, .batch_size = 5});
  EXPECT_EQ(sampler.TrainBatch(0, 0, 0, 2).num_samples(), 2);
  EXPECT_EQ(sampler.TrainBatch(0, 0, 1, 2).num_samples(), 3);
  EXPECT_EQ(sampler.TrainBatch(0, 0, 1, 2).first_sample, 2);
  EXPECT_EQ(sampler.TrainBatch(0, 0, 0, 7).num_samples(), 0);
  EXPECT_EQ(sampler.TrainBatch(0, 0, 0, 7).offsets, (Numbers{0}));
}

TEST(SequenceSamplerTest, NegativesAvoidTheWholeHistoryAndCoverTheRest) {
  const Interactions log = Log({{1, 2, 3, 4, 5, 6, 7}}, 10);  // 8, 9 and 10 remain
  const SequenceSampler sampler(&log, {.seed = 2, .batch_size = 1});
  std::map<uint64_t, int> drawn;
  for (int64_t epoch = 0; epoch < 1500; ++epoch) {
    const SequenceBatch batch = sampler.TrainBatch(epoch, 0, 0, 1);
    ASSERT_EQ(batch.negatives.size(), batch.targets.size());
    for (uint64_t id : batch.negatives) ++drawn[id];
  }
  ASSERT_EQ(drawn.size(), 3u);
  for (uint64_t id : {8, 9, 10}) EXPECT_NEAR(drawn[id], 2000, 180);  // sd 37
}

TEST(SequenceSamplerTest, NegativesDoNotDependOnBatchSize) {
  const Interactions log = UnevenLog();
  const auto negatives_of = [&](int batch_size) {
    const SequenceSampler sampler(&log, {.seed = 5, .batch_size = batch_size, .max_length = 6});
    std::map<int64_t, Ids> by_user;
    for (int64_t b = 0; b < sampler.steps_per_epoch(); ++b) {
      const SequenceBatch batch = sampler.TrainBatch(1, b, 0, 1);
      for (int64_t s = 0; s < batch.num_samples(); ++s) {
        by_user[batch.users[s]] = Ids(batch.negatives.begin() + batch.offsets[s],
                                      batch.negatives.begin() + batch.offsets[s + 1]);
      }
    }
    return by_user;
  };
  EXPECT_EQ(negatives_of(3), negatives_of(64));
}

TEST(SequenceSamplerTest, NegativesAreRedrawnEveryEpoch) {
  const Interactions log = Log({{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}}, 1000000);
  const SequenceSampler sampler(&log, {.seed = 2, .batch_size = 1});
  const Ids first = sampler.TrainBatch(0, 0, 0, 1).negatives;
  EXPECT_NE(first, sampler.TrainBatch(1, 0, 0, 1).negatives);
  EXPECT_EQ(std::set<uint64_t>(first.begin(), first.end()).size(), first.size());
}

TEST(SequenceSamplerTest, UserWithEveryItemStillGetsAnotherItemThanTheTarget) {
  const Interactions log = Log({{1, 2, 3, 4, 5, 2, 3}}, 5);
  const SequenceSampler sampler(&log, {.seed = 2, .batch_size = 1});
  for (int64_t epoch = 0; epoch < 200; ++epoch) {
    const SequenceBatch batch = sampler.TrainBatch(epoch, 0, 0, 1);
    for (size_t i = 0; i < batch.targets.size(); ++i) {
      EXPECT_NE(batch.negatives[i], batch.targets[i]);
      EXPECT_TRUE(1 <= batch.negatives[i] && batch.negatives[i] <= 5);
    }
  }
}

TEST(SequenceSamplerTest, CatalogueOfOneItemDoesNotHang) {
  const Interactions log = Log({{1, 1, 1, 1}}, 1);
  EXPECT_EQ(SequenceSampler(&log, {}).TrainBatch(0, 0, 0, 1).negatives, (Ids{1}));
}

TEST(SequenceSamplerTest, NegativesCanBeSwitchedOff) {
  const Interactions log = UnevenLog();
  const SequenceSampler sampler(&log, {.seed = 1, .sample_negatives = false});
  EXPECT_TRUE(sampler.TrainBatch(0, 0, 0, 1).negatives.empty());
}

TEST(SequenceSamplerTest, SharedNegativesDependOnSeedAndStepOnly) {
  const Interactions log = UnevenLog();
  const SequenceSampler a(&log, {.seed = 1, .batch_size = 2}),
      b(&log, {.seed = 1, .batch_size = 50});
  EXPECT_EQ(a.SharedNegatives(3, 100), b.SharedNegatives(3, 100));
  EXPECT_NE(a.SharedNegatives(3, 100), a.SharedNegatives(4, 100));
  const Ids few = a.SharedNegatives(3, 10), many = a.SharedNegatives(3, 4000);
  EXPECT_TRUE(std::equal(few.begin(), few.end(), many.begin()));
  EXPECT_EQ(std::set<uint64_t>(many.begin(), many.end()).size(), 40u);
  EXPECT_EQ(*std::min_element(many.begin(), many.end()), 1u);
  EXPECT_EQ(*std::max_element(many.begin(), many.end()), 40u);
}

TEST(SequenceSamplerTest, ThreadsThatRunAheadSeeTheSameBatches) {
  const Interactions log = UnevenLog();
  const SequenceSampler::Options options{.seed = 5, .batch_size = 4, .max_length = 6};
  const SequenceSampler shared(&log, options);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const SequenceSampler own(&log, options);
      for (int64_t epoch = t; epoch < 20; ++epoch) {
        for (int64_t b = 0; b < own.steps_per_epoch(); ++b) {
          ExpectSame(shared.TrainBatch(epoch, b, t, 4), own.TrainBatch(epoch, b, t, 4));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace tandem::data
