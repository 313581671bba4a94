// Rows that miss steps get nothing, a closed form, or, bit for bit, the result of an optimizer that
// updates all rows in all steps.
// Getting nothing costs accuracy: apache/mxnet#17728 (Criteo, AUC 0.802 dense, 0.794 lazy),
// tensorflow/tensorflow#23668.
#include "ps/optimizer/lazy_catch_up.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/optimizer.h"
#include "ps/server/table_files.h"
#include "ps/store/initializer.h"
#include "ps/store/table.h"
#include "tests/ps/push_and_commit.h"
#include "tests/ps/spec.h"
#include "tests/support/temp_folder.h"

namespace tandem::ps {
namespace {

constexpr int kKinds[] = {SPARSE_SGD,      SPARSE_ADAGRAD, SPARSE_ADAM,
                          SPARSE_ADAMW,    SPARSE_AMSGRAD, SPARSE_MOMENTUM,
                          SPARSE_NESTEROV, SPARSE_RMSPROP, SPARSE_ADADELTA};
constexpr uint64_t kRows = 40;

TableSpec SpecOf(int optimizer, TableSpec::Mode mode, uint32_t dim,
                 RowStorage storage = STORED_F32) {
  TableSpec spec = MakeTableSpec(1, dim, optimizer);
  if (optimizer == SPARSE_SGD) spec.set_weight_decay(0.1f);
  spec.set_mode(mode);
  spec.set_storage(storage);
  return spec;
}

// A constant at first, then a schedule.
float RateOf(uint64_t step) {
  return step < 100 ? 0.01f : 0.02f / (1 + 0.01f * static_cast<float>(step));
}
bool SkipsStep(uint64_t step) { return step % 17 == 3; }
constexpr float kScale = 0.25f;

// All rows as one dense parameter under the kernels' dense optimizer. The row of id i lies at (i -
// 1) * dim.
class DenseParameter {
 public:
  explicit DenseParameter(const TableSpec& spec) : spec_(spec), weights_(kRows * spec.dim()) {
    for (uint64_t id = 1; id <= kRows; ++id) {
      InitializeWeights(spec.seed(), spec.init_stddev(), id,
                        weights_.data() + (id - 1) * spec.dim(), spec.dim());
    }
    const float initial = spec.optimizer() == SPARSE_ADAGRAD ? spec.initial_accumulator() : 0;
    for (auto& slot : slots_) slot.assign(weights_.size(), initial);
  }

  void Step(const std::vector<float>& gradient, uint64_t step, double rate) {
    const double b1 = spec_.beta1(), b2 = spec_.beta2(), epsilon = spec_.epsilon(),
                 decay = spec_.weight_decay();
    const auto n = static_cast<int64_t>(weights_.size());
    float *w = weights_.data(), *a = slots_[0].data(), *b = slots_[1].data(), *c = slots_[2].data();
    const float* g = gradient.data();
    switch (spec_.optimizer()) {
      case SPARSE_SGD:
        return kernels::SgdUpdate(w, g, n, {rate, decay, kScale});
      case SPARSE_ADAGRAD:
        return kernels::AdagradUpdate(w, a, g, n, {rate, epsilon, kScale});
      case SPARSE_ADAM:
      case SPARSE_ADAMW:
        return kernels::AdamUpdate(w, a, b, g, n, {rate, b1, b2, epsilon, decay, kScale, step});
      case SPARSE_AMSGRAD:
        return kernels::AmsgradUpdate(w, a, b, c, g, n, {rate, b1, b2, epsilon, 0, kScale, step});
      case SPARSE_MOMENTUM:
        return kernels::MomentumUpdate(w, a, g, n, {rate, spec_.momentum(), kScale, false});
      case SPARSE_NESTEROV:
        return kernels::MomentumUpdate(w, a, g, n, {rate, spec_.momentum(), kScale, true});
      case SPARSE_RMSPROP:
        return kernels::RmspropUpdate(w, a, g, n, {rate, spec_.rho(), epsilon, kScale});
      default:
        return kernels::AdadeltaUpdate(w, a, b, g, n, {rate, spec_.rho(), epsilon, kScale});
    }
  }

  const float* row(uint64_t id) const { return weights_.data() + (id - 1) * spec_.dim(); }
  const float* slot(size_t run, uint64_t id) const {
    return slots_[run].data() + (id - 1) * spec_.dim();
  }

 private:
  const TableSpec spec_;
  std::vector<float> weights_, slots_[3];
};

// The rows of DenseParameter in tables, on any number of servers.
class Servers {
 public:
  Servers(const TableSpec& spec, size_t count) : spec_(spec), maps_(count) {
    for (TableMap& tables : maps_) tables[1] = std::make_unique<Table>(spec);
  }
  Table& Owner(uint64_t id) { return *maps_[rpc::VirtualShard(1, id) % maps_.size()].at(1); }

  void Step(const std::vector<uint64_t>& ids, const std::vector<float>& gradient, uint64_t step) {
    for (uint64_t id : ids) {
      const auto begin = gradient.begin() + static_cast<int64_t>((id - 1) * spec_.dim());
      auto kept = std::make_shared<const std::vector<float>>(begin, begin + spec_.dim());
      Owner(id).Accumulate(0, step, {&id, 1}, kept->data(), kept);
    }
    for (TableMap& tables : maps_) tables[1]->Commit(step, RateOf(step), kScale, SkipsStep(step));
  }
  std::vector<float> Pull(uint64_t step, uint64_t id) {
    std::vector<float> row(spec_.dim());
    Owner(id).Pull(step, {&id, 1}, true, row.data());
    return row;
  }
  absl::uint128 Hash() {
    absl::uint128 hash = 0;
    for (TableMap& tables : maps_) hash += tables[1]->Hash().hash;
    return hash;
  }
  void SaveAndLoad(uint64_t step, size_t count_after) {
    const support::TempFolder folder;
    LoadArgs args{step, folder.path(), {}, {}, 0};
    args.shards.emplace_back().set_count(rpc::kNumVirtualShards);
    for (size_t server = 0; server < maps_.size(); ++server) {
      const std::string own = folder / std::to_string(server);
      std::filesystem::create_directory(own);
      const auto files = SaveTables(maps_[server], {}, own, [](uint32_t) { return true; });
      ASSERT_TRUE(files.ok()) << files.status();
      for (const SavedFile& file : *files) {
        const std::string name = std::to_string(server) + file.name();
        std::filesystem::rename(own + "/" + file.name(), folder / name);
        args.files.push_back(name);
      }
    }
    std::vector<TableMap> after(count_after);
    for (size_t server = 0; server < count_after; ++server) {
      auto loaded =
          LoadTables(maps_[0], args, [=](uint32_t shard) { return shard % count_after == server; });
      ASSERT_TRUE(loaded.ok()) << loaded.status();
      after[server] = std::move(loaded->tables);
    }
    maps_ = std::move(after);
  }

 private:
  const TableSpec spec_;
  std::vector<TableMap> maps_;
};

// The ids with a gradient in a step: all ids in the first step, then fewer and fewer of the higher
// ids.
std::vector<uint64_t> IdsOf(uint64_t step) {
  std::vector<uint64_t> ids;
  for (uint64_t id = 1; id <= kRows; ++id) {
    if (step == 1 || Fmix64(step * 1000 + id) % (2 * id) == 0) ids.push_back(id);
  }
  return ids;
}

// Values at the places of `ids`, zero elsewhere.
std::vector<float> GradientOf(uint64_t step, const std::vector<uint64_t>& ids, uint32_t dim) {
  std::vector<float> gradient(kRows * dim);
  const auto values = MakeValues(step, ids.size() * dim);
  for (size_t i = 0; i < ids.size(); ++i) {
    std::copy_n(values.begin() + static_cast<int64_t>(i * dim), dim,
                gradient.begin() + static_cast<int64_t>((ids[i] - 1) * dim));
  }
  return gradient;
}

bool SameBits(const float* a, const float* b, size_t count) {
  return std::memcmp(a, b, count * sizeof(float)) == 0;
}

TEST(DenseEquivalentTest, EqualsTheDenseOptimizerBitForBitOnAnyNumberOfServers) {
  for (int kind : kKinds) {
    for (uint32_t dim : {3u, 33u}) {
      const TableSpec spec = SpecOf(kind, TableSpec::DENSE_EQUIVALENT, dim);
      DenseParameter dense(spec);
      Servers servers(spec, 1 + dim % 3);
      for (uint64_t step = 1; step <= 400; ++step) {
        SCOPED_TRACE(absl::StrCat(NameOf(spec.optimizer()), " step ", step));
        const auto ids = IdsOf(step);
        for (uint64_t id : ids)
          ASSERT_TRUE(SameBits(servers.Pull(step, id).data(), dense.row(id), dim)) << "row " << id;
        const auto gradient = GradientOf(step, ids, dim);
        servers.Step(ids, gradient, step);
        if (!SkipsStep(step)) dense.Step(gradient, step, RateOf(step));
        if (step == 150) servers.SaveAndLoad(step, 2);
        if (step == 203) servers.Hash();
      }
      servers.Hash();  // brings all rows up
      for (uint64_t id = 1; id <= kRows; ++id) {
        SCOPED_TRACE(absl::StrCat(NameOf(spec.optimizer()), " row ", id));
        const RowView row = servers.Owner(id).Find(id);
        ASSERT_TRUE(SameBits(reinterpret_cast<const float*>(row.weights), dense.row(id), dim));
        for (size_t run = 0; run < servers.Owner(id).layout().num_slot_values() / dim; ++run) {
          ASSERT_TRUE(SameBits(row.slots + run * dim, dense.slot(run, id), dim)) << run;
        }
      }
    }
  }
}

// A row at rest only needs its running means updated: thousands of steps at once, which the dense
// optimizer runs one by one.
TEST(DenseEquivalentTest, ALongSleepEqualsTheDenseOptimizer) {
  for (int kind : kKinds) {
    const TableSpec spec = SpecOf(kind, TableSpec::DENSE_EQUIVALENT, 5);
    DenseParameter dense(spec);
    Servers servers(spec, 1);
    std::vector<uint64_t> all;
    for (uint64_t id = 1; id <= kRows; ++id) all.push_back(id);
    for (uint64_t step = 1; step <= 4000; ++step) {
      const auto gradient =
          step <= 3 || step == 4000 ? GradientOf(step, all, 5) : std::vector<float>(kRows * 5);
      servers.Step(step <= 3 || step == 4000 ? all : std::vector<uint64_t>(), gradient, step);
      if (!SkipsStep(step)) dense.Step(gradient, step, RateOf(step));
    }
    for (uint64_t id = 1; id <= kRows; ++id) {
      ASSERT_TRUE(SameBits(servers.Pull(0, id).data(), dense.row(id), 5))
          << NameOf(spec.optimizer()) << " row " << id;
    }
  }
}

// Holds for rows that are rounded when stored too. The other table gets explicit zero gradients.
TEST(DenseEquivalentTest, EqualsATableThatIsGivenTheZeros) {
  for (int kind : {SPARSE_SGD, SPARSE_ADAM, SPARSE_ADAMW, SPARSE_MOMENTUM, SPARSE_ADADELTA}) {
    for (RowStorage storage : {STORED_F32, STORED_BF16}) {
      Servers missed(SpecOf(kind, TableSpec::DENSE_EQUIVALENT, 7, storage), 1),
          given(SpecOf(kind, TableSpec::LAZY, 7, storage), 1);
      std::vector<uint64_t> all;
      for (uint64_t id = 1; id <= kRows; ++id) all.push_back(id);
      for (uint64_t step = 1; step <= 200; ++step) {
        const auto gradient = GradientOf(step, IdsOf(step), 7);
        missed.Step(IdsOf(step), gradient, step);
        given.Step(all, gradient, step);
      }
      EXPECT_EQ(missed.Hash(), given.Hash())
          << NameOf(static_cast<tandem::SparseOptimizer>(kind)) << " " << storage;
    }
  }
}

// A row begins with its first commit. Before that, its id alone decides its values, pulled or not.
TEST(DenseEquivalentTest, RowsThatWereNeverCommittedMissNothing) {
  const TableSpec spec = SpecOf(SPARSE_ADAMW, TableSpec::DENSE_EQUIVALENT, 4);
  Servers pulled(spec, 1), fresh(spec, 1);
  const auto first = pulled.Pull(1, 7);
  for (uint64_t step = 1; step <= 30; ++step) {
    const auto gradient = GradientOf(step, {1}, 4);
    pulled.Step({1}, gradient, step);
    fresh.Step({1}, gradient, step);
    EXPECT_EQ(pulled.Pull(step + 1, 7), first) << "no weight decay before the first gradient";
  }
  pulled.Step({7}, GradientOf(31, {7}, 4), 31);
  fresh.Step({7}, GradientOf(31, {7}, 4), 31);
  EXPECT_EQ(pulled.Hash(), fresh.Hash());
  const auto trained = pulled.Pull(32, 7);
  pulled.Step({}, {}, 32);
  EXPECT_NE(pulled.Pull(33, 7), trained) << "from then on it decays";
}

TEST(DenseEquivalentTest, LookingChangesNothing) {
  for (int kind : kKinds) {
    for (auto mode : {TableSpec::CATCH_UP, TableSpec::DENSE_EQUIVALENT}) {
      Servers watched(SpecOf(kind, mode, 6), 1), alone(SpecOf(kind, mode, 6), 1);
      for (uint64_t step = 1; step <= 60; ++step) {
        const auto gradient = GradientOf(step, IdsOf(step), 6);
        watched.Step(IdsOf(step), gradient, step);
        alone.Step(IdsOf(step), gradient, step);
        watched.Pull(step % 2 == 0 ? 0 : step + 1, 1 + step % kRows);
        if (step % 20 == 0) watched.Hash();
      }
      EXPECT_EQ(watched.Hash(), alone.Hash())
          << NameOf(static_cast<tandem::SparseOptimizer>(kind)) << " " << mode;
    }
  }
}

TEST(ModesTest, CoincideWhereAGradientOfZeroChangesNothing) {
  for (int kind : {SPARSE_SGD, SPARSE_ADAGRAD, SPARSE_ROWWISE_ADAGRAD}) {
    std::vector<absl::uint128> hashes;
    for (auto mode : {TableSpec::LAZY, TableSpec::CATCH_UP, TableSpec::DENSE_EQUIVALENT}) {
      TableSpec spec = MakeTableSpec(1, 6, kind);
      spec.set_mode(mode);
      Servers servers(spec, 1);
      for (uint64_t step = 1; step <= 40; ++step)
        servers.Step(IdsOf(step), GradientOf(step, IdsOf(step), 6), step);
      hashes.push_back(servers.Hash());
    }
    EXPECT_EQ(hashes[0], hashes[1]) << kind;
    EXPECT_EQ(hashes[0], hashes[2]) << kind;
  }
}

// apache/mxnet#17728, tensorflow/tensorflow#23668: in the lazy mode a rare row's old moments still
// push it, as if no step had passed.
TEST(ModesTest, ARareRowForgetsItsOldMomentsInAllModesButLazy) {
  const auto moment = [](TableSpec::Mode mode) {
    TableSpec spec = MakeTableSpec(1, 1, SPARSE_ADAM);
    spec.set_mode(mode);
    Table table(spec);
    const std::vector<uint64_t> rare = {5};
    const float up = 1, nothing = 0;
    PushAndCommit(table, 1, 0.01f, rare, &up);
    for (uint64_t step = 2; step <= 100; ++step) table.Commit(step, 0.01f, 1, false);
    PushAndCommit(table, 101, 0.01f, rare, &nothing);
    return table.Find(5).slots[0];
  };
  EXPECT_FLOAT_EQ(moment(TableSpec::LAZY), 0.09f);
  const double forgotten = 0.1 * std::pow(0.9f, 100);
  EXPECT_NEAR(moment(TableSpec::CATCH_UP), forgotten, 1e-4 * forgotten);
  EXPECT_NEAR(moment(TableSpec::DENSE_EQUIVALENT), forgotten, 1e-4 * forgotten);
}

TEST(CatchUpTest, MeansFadeAndWeightsDecayInClosedForm) {
  for (int kind :
       {SPARSE_ADAM, SPARSE_ADAMW, SPARSE_MOMENTUM, SPARSE_ADADELTA, SPARSE_AMSGRAD, SPARSE_SGD}) {
    const TableSpec spec = SpecOf(kind, TableSpec::CATCH_UP, 9);
    Table caught_up(spec);
    const auto optimizer = MakeSparseOptimizer(spec);
    std::vector<float> weights(9), slots(optimizer->num_slot_values(9));
    InitializeWeights(spec.seed(), spec.init_stddev(), 5, weights.data(), 9);
    optimizer->Init(slots.data(), 9);
    const std::vector<uint64_t> ids = {5};
    const auto first = MakeValues(1, 9), second = MakeValues(2, 9);
    PushAndCommit(caught_up, 1, RateOf(1), ids, first.data());
    optimizer->Apply(weights.data(), slots.data(), first.data(), 9, 1, RateOf(1), 1);
    double decay = 1;
    for (uint64_t step = 2; step <= 150; ++step) {
      caught_up.Commit(step, RateOf(step), 1, SkipsStep(step));
      if (!SkipsStep(step)) decay *= 1 - double{RateOf(step)} * spec.weight_decay();
    }
    for (float& w : weights) w = static_cast<float>(w * decay);
    std::vector<float> shown(9);
    caught_up.Pull(151, ids, true, shown.data());
    for (size_t i = 0; i < 9; ++i) EXPECT_FLOAT_EQ(shown[i], weights[i]) << kind;
    for (size_t i = 0; i < slots.size(); ++i) {
      slots[i] =
          static_cast<float>(slots[i] * std::pow(double{optimizer->slot_fading(i / 9)}, 149));
    }
    PushAndCommit(caught_up, 151, RateOf(151), ids, second.data());
    optimizer->Apply(weights.data(), slots.data(), second.data(), 9, 151, RateOf(151), 1);
    const RowView row = caught_up.Find(5);
    for (size_t i = 0; i < 9; ++i)
      EXPECT_NEAR(reinterpret_cast<float*>(row.weights)[i], weights[i], 1e-6) << kind;
    for (size_t i = 0; i < slots.size(); ++i)
      EXPECT_NEAR(row.slots[i], slots[i], 1e-6 * std::fabs(slots[i])) << kind;
  }
}

TEST(CatchUpTest, SavedRowsGoOnWhereTheyWere) {
  for (int kind : {SPARSE_ADAM, SPARSE_ADAMW, SPARSE_RMSPROP}) {
    Servers loaded(SpecOf(kind, TableSpec::CATCH_UP, 6), 2),
        went_on(SpecOf(kind, TableSpec::CATCH_UP, 6), 2);
    for (uint64_t step = 1; step <= 60; ++step) {
      loaded.Step(IdsOf(step), GradientOf(step, IdsOf(step), 6), step);
      went_on.Step(IdsOf(step), GradientOf(step, IdsOf(step), 6), step);
      if (step != 30) continue;
      loaded.SaveAndLoad(step, 1);
      if (kind == SPARSE_ADAMW)
        went_on.SaveAndLoad(step, 2);  // saving is a use of rows whose decay depends on past rates
    }
    EXPECT_EQ(loaded.Hash(), went_on.Hash()) << kind;
  }
}

TEST(CatchUpTest, WorksInEveryStorage) {
  for (RowStorage storage : {STORED_BF16, STORED_INT8}) {
    Servers exact(SpecOf(SPARSE_ADAMW, TableSpec::CATCH_UP, 6), 1),
        stored(SpecOf(SPARSE_ADAMW, TableSpec::CATCH_UP, 6, storage), 1);
    for (uint64_t step = 1; step <= 100; ++step) {
      exact.Step(IdsOf(step), GradientOf(step, IdsOf(step), 6), step);
      stored.Step(IdsOf(step), GradientOf(step, IdsOf(step), 6), step);
    }
    stored.SaveAndLoad(100, 1);
    for (uint64_t id = 1; id <= kRows; ++id) {
      const auto want = exact.Pull(0, id), have = stored.Pull(0, id);
      for (size_t i = 0; i < 6; ++i)
        EXPECT_NEAR(have[i], want[i], 0.05) << storage << " row " << id;
    }
  }
}

// If trainers commit one by one, a step has several commits, and some commits come late.
TEST(CatchUpTest, OnlyWholeStepsAreMissed) {
  TableSpec spec = MakeTableSpec(1, 1, SPARSE_MOMENTUM);
  spec.set_mode(TableSpec::CATCH_UP);
  Table table(spec);
  const float one = 1, nothing = 0;
  const std::vector<uint64_t> mine = {5}, other = {6};
  const auto moment = [&] { return table.Find(5).slots[0]; };
  PushAndCommit(table, 1, 0.1f, mine, &one);
  PushAndCommit(table, 3, 0.1f, other, &one);
  PushAndCommit(table, 3, 0.1f, mine, &nothing);  // step 2 was missed, step 3 was not
  EXPECT_FLOAT_EQ(moment(), 0.9f * 0.9f);
  PushAndCommit(table, 2, 0.1f, mine, &nothing);  // a slow trainer's
  EXPECT_FLOAT_EQ(moment(), 0.9f * 0.9f * 0.9f);
  EXPECT_EQ(table.Find(5).header->last_step, 3u);
  PushAndCommit(table, 4, 0.1f, mine, &nothing);
  EXPECT_FLOAT_EQ(moment(), 0.9f * 0.9f * 0.9f * 0.9f);
}

TEST(LazyCatchUpTest, StepsBeforeItsBeginningAreNotReplayed) {
  const TableSpec spec = SpecOf(SPARSE_SGD, TableSpec::DENSE_EQUIVALENT, 1);
  const auto optimizer = MakeSparseOptimizer(spec);
  LazyCatchUp missed(*optimizer, spec.mode(), 1);
  float weight = 1;
  missed.BeginAfter(10);
  missed.Add(11, 1, false);
  missed.Add(12, 1, true);
  missed.Add(12, 1, false);  // the step was skipped
  missed.Add(13, 0.5f, false);
  std::vector<uint64_t> steps;
  missed.Replay(&weight, nullptr, 4, 13, [&](uint64_t step) { steps.push_back(step); });
  EXPECT_EQ(steps, (std::vector<uint64_t>{11, 13}));
  EXPECT_FLOAT_EQ(weight, 0.9f * 0.95f);
  EXPECT_FLOAT_EQ(missed.WeightDecay(0, 11), 0.9f);
  EXPECT_EQ(missed.last_step(), 13u);
}

}  // namespace
}  // namespace tandem::ps
