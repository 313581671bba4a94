// One suite over every sparse optimizer: its slots, its steps against a reference in f64, and what
// no optimizer may do.
#include "ps/optimizer/sparse_optimizer.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/vector/vectorise.h"
#include "ps/store/table.h"
#include "tests/ps/push_and_commit.h"
#include "tests/ps/spec.h"

namespace tandem::ps {
namespace {

// A row in f64, updated by textbook formulas.
struct Reference {
  std::vector<double> w, a, b, c;  // weights and up to three runs of state
  double last_rate = 0;
};

double Sign(double x) { return x < 0 ? -1 : 1; }

// The proximal step of FTRL from z: a, curvature: (beta + sqrt n) / rate + l2.
void MinimiseFtrl(const TableSpec& spec, double rate, double group_l1, Reference& row) {
  std::vector<double> s, q;
  double squares = 0;
  for (size_t i = 0; i < row.w.size(); ++i) {
    s.push_back(std::fabs(row.a[i]) <= spec.l1() ? 0 : row.a[i] - Sign(row.a[i]) * spec.l1());
    q.push_back((spec.beta() + std::sqrt(row.b[i])) / rate + spec.l2());
    squares += s[i] * s[i] / q[i];
  }
  const double norm = std::sqrt(squares),
               threshold = group_l1 * std::sqrt(static_cast<double>(row.w.size()));
  const double kept = threshold == 0 ? 1 : norm <= threshold ? 0 : 1 - threshold / norm;
  for (size_t i = 0; i < row.w.size(); ++i) row.w[i] = -s[i] / q[i] * kept;
}

void Ftrl(const TableSpec& spec, const std::vector<double>& g, double rate, double group_l1,
          Reference& row) {
  for (size_t i = 0; i < g.size(); ++i) {
    const double before =
        row.last_rate == 0 ? 0 : (spec.beta() + std::sqrt(row.b[i])) / row.last_rate;
    row.b[i] += g[i] * g[i];
    row.a[i] += g[i] - ((spec.beta() + std::sqrt(row.b[i])) / rate - before) * row.w[i];
  }
  MinimiseFtrl(spec, rate, group_l1, row);
  row.last_rate = rate;
}

void Adam(const TableSpec& spec, const std::vector<double>& g, double t, double rate, double decay,
          bool amsgrad, Reference& row) {
  for (size_t i = 0; i < g.size(); ++i) {
    row.a[i] = spec.beta1() * row.a[i] + (1.0 - spec.beta1()) * g[i];
    row.b[i] = spec.beta2() * row.b[i] + (1.0 - spec.beta2()) * g[i] * g[i];
    if (amsgrad) row.c[i] = std::max(row.c[i], row.b[i]);
    const double second = amsgrad ? row.c[i] : row.b[i];
    const double m = row.a[i] / (1 - std::pow(spec.beta1(), t)),
                 v = second / (1 - std::pow(spec.beta2(), t));
    row.w[i] -= rate * decay * row.w[i] + rate * m / (std::sqrt(v) + spec.epsilon());
  }
}

using Gradient = std::vector<double>;

struct Kind {
  const char* name;
  tandem::SparseOptimizer value;
  size_t runs, more;   // slots: runs of dim numbers, and some more
  float initial_slot;  // in all runs but FTRL's first
  double rate;         // a good one
  // One step with scaled gradient g.
  void (*step)(const TableSpec& spec, const Gradient& g, double t, double rate, Reference& row);
};

const Kind kKinds[] = {
    {"Sgd", SPARSE_SGD, 0, 0, 0, 0.1,
     [](const TableSpec&, const Gradient& g, double, double rate, Reference& row) {
       for (size_t i = 0; i < g.size(); ++i) row.w[i] -= rate * g[i];
     }},
    {"Adagrad", SPARSE_ADAGRAD, 1, 0, 0.1f, 0.3,
     [](const TableSpec& spec, const Gradient& g, double, double rate, Reference& row) {
       for (size_t i = 0; i < g.size(); ++i) row.a[i] += g[i] * g[i];
       for (size_t i = 0; i < g.size(); ++i)
         row.w[i] -= rate * g[i] / (std::sqrt(row.a[i]) + spec.epsilon());
     }},
    {"RowwiseAdagrad", SPARSE_ROWWISE_ADAGRAD, 0, 1, 0.1f, 0.3,
     [](const TableSpec& spec, const Gradient& g, double, double rate, Reference& row) {
       row.a.resize(1, 0.1f);
       for (double x : g) row.a[0] += x * x / static_cast<double>(g.size());
       for (size_t i = 0; i < g.size(); ++i)
         row.w[i] -= rate * g[i] / (std::sqrt(row.a[0]) + spec.epsilon());
     }},
    {"Adam", SPARSE_ADAM, 2, 0, 0, 0.05,
     [](const TableSpec& spec, const Gradient& g, double t, double rate, Reference& row) {
       Adam(spec, g, t, rate, 0, false, row);
     }},
    {"AdamW", SPARSE_ADAMW, 2, 0, 0, 0.05,
     [](const TableSpec& spec, const Gradient& g, double t, double rate, Reference& row) {
       Adam(spec, g, t, rate, spec.weight_decay(), false, row);
     }},
    {"Amsgrad", SPARSE_AMSGRAD, 3, 0, 0, 0.05,
     [](const TableSpec& spec, const Gradient& g, double t, double rate, Reference& row) {
       Adam(spec, g, t, rate, 0, true, row);
     }},
    {"Momentum", SPARSE_MOMENTUM, 1, 0, 0, 0.02,
     [](const TableSpec& spec, const Gradient& g, double, double rate, Reference& row) {
       for (size_t i = 0; i < g.size(); ++i)
         row.w[i] -= rate * (row.a[i] = spec.momentum() * row.a[i] + g[i]);
     }},
    {"Nesterov", SPARSE_NESTEROV, 1, 0, 0, 0.02,
     [](const TableSpec& spec, const Gradient& g, double, double rate, Reference& row) {
       for (size_t i = 0; i < g.size(); ++i) {
         row.a[i] = spec.momentum() * row.a[i] + g[i];
         row.w[i] -= rate * (g[i] + spec.momentum() * row.a[i]);
       }
     }},
    {"Rmsprop", SPARSE_RMSPROP, 1, 0, 0, 0.01,
     [](const TableSpec& spec, const Gradient& g, double, double rate, Reference& row) {
       for (size_t i = 0; i < g.size(); ++i) {
         row.a[i] = spec.rho() * row.a[i] + (1.0 - spec.rho()) * g[i] * g[i];
         row.w[i] -= rate * g[i] / (std::sqrt(row.a[i]) + spec.epsilon());
       }
     }},
    {"Adadelta", SPARSE_ADADELTA, 2, 0, 0, 1,
     [](const TableSpec& spec, const Gradient& g, double, double rate, Reference& row) {
       for (size_t i = 0; i < g.size(); ++i) {
         row.a[i] = spec.rho() * row.a[i] + (1.0 - spec.rho()) * g[i] * g[i];
         const double x =
             g[i] * std::sqrt((row.b[i] + spec.epsilon()) / (row.a[i] + spec.epsilon()));
         row.b[i] = spec.rho() * row.b[i] + (1.0 - spec.rho()) * x * x;
         row.w[i] -= rate * x;
       }
     }},
    {"Ftrl", SPARSE_FTRL, 2, 1, 0.1f, 0.3,
     [](const TableSpec& spec, const Gradient& g, double, double rate, Reference& row) {
       Ftrl(spec, g, rate, 0, row);
     }},
    {"GroupFtrl", SPARSE_GROUP_FTRL, 2, 1, 0.1f, 0.3,
     [](const TableSpec& spec, const Gradient& g, double, double rate, Reference& row) {
       Ftrl(spec, g, rate, spec.group_l1(), row);
     }},
    // No trainer pulls here: the weights at which gradients were computed are zero, as Init says.
    {"DelayCompensatedSgd", SPARSE_DC_SGD, 1, 0, 0, 0.1,
     [](const TableSpec& spec, const Gradient& g, double, double rate, Reference& row) {
       for (size_t i = 0; i < g.size(); ++i)
         row.w[i] -= rate * (g[i] + spec.delay_compensation() * g[i] * g[i] * row.w[i]);
     }},
};

bool IsFtrl(const Kind& kind) {
  return kind.value == SPARSE_FTRL || kind.value == SPARSE_GROUP_FTRL;
}

// Learning rates that rise, fall and stay.
float RateOf(const Kind& kind, uint64_t step) {
  const float now = static_cast<float>(step);
  return static_cast<float>(kind.rate) * (step < 5    ? 0.2f * now
                                          : step < 20 ? 1.0f
                                                      : 1 / std::sqrt(now / 20));
}

class SparseOptimizerTest : public testing::TestWithParam<Kind> {
 protected:
  // A row's weights and slots, each with a guard behind it.
  struct Row {
    Row(const SparseOptimizer& optimizer, uint32_t dim)
        : dim(dim),
          weights(dim + kGuard, kGuardValue),
          slots(optimizer.num_slot_values(dim) + kGuard, kGuardValue) {
      optimizer.Init(slots.data(), dim);
    }
    void Apply(const SparseOptimizer& optimizer, const std::vector<float>& gradient, uint64_t step,
               float rate, float scale) {
      optimizer.Apply(weights.data(), slots.data(), gradient.data(), dim, step, rate, scale);
    }
    bool operator==(const Row&) const = default;

    static constexpr size_t kGuard = 16;
    static constexpr float kGuardValue = 77;
    uint32_t dim;
    std::vector<float> weights, slots;
  };
  std::unique_ptr<SparseOptimizer> Make(uint32_t dim) {
    return MakeSparseOptimizer(MakeTableSpec(1, dim, GetParam().value));
  }
};

TEST_P(SparseOptimizerTest, InitFillsTheSlotsAndNothingElse) {
  for (uint32_t dim : {1, 3, 16, 65}) {
    const auto optimizer = Make(dim);
    const size_t expected = GetParam().runs * dim + GetParam().more;
    ASSERT_EQ(optimizer->num_slot_values(dim), expected);
    const Row row(*optimizer, dim);
    for (size_t i = 0; i < row.slots.size(); ++i) {
      const bool zero = IsFtrl(GetParam()) && (i < dim || i == expected - 1);
      EXPECT_EQ(row.slots[i], i >= expected ? Row::kGuardValue
                              : zero        ? 0
                                            : GetParam().initial_slot)
          << i;
    }
  }
}

TEST_P(SparseOptimizerTest, ManyStepsFollowTheReference) {
  for (uint32_t dim : {1, 3, 16, 65}) {
    const TableSpec spec = MakeTableSpec(1, dim, GetParam().value);
    const auto optimizer = Make(dim);
    Row row(*optimizer, dim);
    const auto weights = MakeValues(1, dim);
    std::copy(weights.begin(), weights.end(), row.weights.begin());
    Reference reference{{weights.begin(), weights.end()}, {}, {}, {}};
    const double initial = GetParam().initial_slot;
    if (GetParam().runs > 0) reference.a.assign(dim, IsFtrl(GetParam()) ? 0 : initial);
    reference.b.assign(dim, initial);
    reference.c.assign(dim, initial);
    for (uint64_t step = 1; step <= 60; ++step) {
      const auto gradient = MakeValues(step, dim);
      const float rate = RateOf(GetParam(), step);
      row.Apply(*optimizer, gradient, step, rate, 0.25f);
      Gradient scaled;
      for (float g : gradient) scaled.push_back(0.25 * g);
      GetParam().step(spec, scaled, static_cast<double>(step), rate, reference);
      for (uint32_t i = 0; i < dim; ++i) {
        ASSERT_NEAR(row.weights[i], reference.w[i], 2e-5 * (1 + std::fabs(reference.w[i])))
            << i << " of " << dim << " in step " << step;
      }
    }
    for (uint32_t i = 0; i < dim * GetParam().runs; ++i) {
      const double expected = i < dim       ? reference.a[i]
                              : i < 2 * dim ? reference.b[i - dim]
                                            : reference.c[i - 2 * dim];
      EXPECT_NEAR(row.slots[i], expected, 1e-4 * (1e-3 + std::fabs(expected)))
          << i << " of " << dim;
    }
  }
}

// A checkpoint holds weights and slots only. State kept apart from its row would get lost
// (dmlc/dgl#3561).
TEST_P(SparseOptimizerTest, WeightsAndSlotsAreAllThereIs) {
  const auto optimizer = Make(19);
  Row stays(*optimizer, 19);
  for (uint64_t step = 1; step <= 5; ++step)
    stays.Apply(*optimizer, MakeValues(step, 19), step, RateOf(GetParam(), step), 1);
  Row moves = stays;
  const auto another = Make(19);
  for (uint64_t step = 6; step <= 10; ++step) {
    stays.Apply(*optimizer, MakeValues(step, 19), step, RateOf(GetParam(), step), 1);
    moves.Apply(*another, MakeValues(step, 19), step, RateOf(GetParam(), step), 1);
  }
  EXPECT_EQ(stays, moves);
}

TEST_P(SparseOptimizerTest, BitsAreThoseOfEveryInstructionSet) {
  const auto optimizer = Make(37);
  Row widest(*optimizer, 37), baseline(*optimizer, 37);
  for (uint64_t step = 1; step <= 5; ++step) {
    widest.Apply(*optimizer, MakeValues(step, 37), step, RateOf(GetParam(), step), 0.5f);
    const kernels::InstructionSetLimit limit(kernels::InstructionSet::BASELINE);
    baseline.Apply(*optimizer, MakeValues(step, 37), step, RateOf(GetParam(), step), 0.5f);
  }
  EXPECT_EQ(widest, baseline);
}

// One call updates its rows one after another, each with its own scale. A row may occur twice.
TEST_P(SparseOptimizerTest, RowsAtOnceAreRowsOneByOne) {
  for (const uint32_t dim : {1u, 16u, 37u, 64u}) {
    const auto optimizer = Make(dim);
    std::vector<Row> together(5, Row(*optimizer, dim)), alone = together;
    for (uint64_t step = 1; step <= 4; ++step) {
      std::vector<std::vector<float>> gradients;
      for (uint64_t row = 0; row < 6; ++row) gradients.push_back(MakeValues(10 * step + row, dim));
      std::vector<RowUpdate> updates;
      for (size_t i = 0; i < 6; ++i) {
        const float scale = 0.25f * static_cast<float>(i + 1);
        Row& row = together[i % 5];
        updates.push_back({row.weights.data(), row.slots.data(), gradients[i].data(), scale});
        alone[i % 5].Apply(*optimizer, gradients[i], step, RateOf(GetParam(), step), scale);
      }
      optimizer->ApplyRows(updates, dim, step, RateOf(GetParam(), step));
      ASSERT_EQ(together, alone) << dim << " in step " << step;
    }
    optimizer->ApplyRows({}, dim, 5, 1);
    EXPECT_EQ(together, alone);
  }
}

// Descends a quadratic in every row storage.
TEST_P(SparseOptimizerTest, LearnsInEveryStorage) {
  constexpr uint32_t kDim = 24;
  for (RowStorage storage : {STORED_F32, STORED_BF16, STORED_INT8}) {
    TableSpec spec = MakeTableSpec(1, kDim, GetParam().value);
    spec.set_storage(storage);
    if (GetParam().value == SPARSE_ADADELTA)
      spec.set_epsilon(1e-4f);  // the root of it is how it begins
    Table table(spec);
    const auto target = MakeValues(9, kDim);
    const std::vector<uint64_t> ids = {5};
    std::vector<float> row(kDim);
    const auto distance = [&](uint64_t step) {
      table.Pull(step, ids, true, row.data());
      double squares = 0;
      for (uint32_t i = 0; i < kDim; ++i) squares += std::pow(row[i] - target[i], 2);
      return std::sqrt(squares);
    };
    const double before = distance(1);
    for (uint64_t step = 1; step <= 300; ++step) {
      distance(step);
      std::vector<float> gradient(kDim);
      for (uint32_t i = 0; i < kDim; ++i) gradient[i] = row[i] - target[i];
      PushAndCommit(table, step, static_cast<float>(GetParam().rate), ids, gradient.data());
    }
    EXPECT_LT(distance(0), 0.25 * before) << storage;
  }
}

// LazyCatchUp relies on this behaviour.
TEST_P(SparseOptimizerTest, AGradientOfZeroDoesWhatTheOptimizerSays) {
  constexpr uint32_t kDim = 21;
  const auto optimizer = Make(kDim);
  if (IsFtrl(GetParam())) return;  // has no other mode than LAZY
  Row row(*optimizer, kDim);
  for (uint64_t step = 1; step <= 5; ++step)
    row.Apply(*optimizer, MakeValues(step, kDim), step, RateOf(GetParam(), step), 1);
  const std::vector<float> zero(kDim);
  int at_rest = 0;
  for (uint64_t step = 6; step <= 800; ++step) {
    const Row before = row;
    const float rate = RateOf(GetParam(), step);
    const bool rests = optimizer->weight_decay() == 0 &&
                       optimizer->AtRest(row.weights.data(), row.slots.data(), kDim, rate);
    row.Apply(*optimizer, zero, step, rate, 1);
    for (size_t i = 0; i < GetParam().runs * kDim; ++i) {
      ASSERT_EQ(row.slots[i], optimizer->slot_fading(i / kDim) * before.slots[i])
          << i << " in step " << step;
    }
    if (rests) {
      ASSERT_EQ(row.weights, before.weights) << step;
    }
    at_rest += rests;
  }
  EXPECT_GT(at_rest, optimizer->weight_decay() == 0 ? 300 : -1);
}

TEST_P(SparseOptimizerTest, NeverWritesBeyondTheRow) {
  const auto optimizer = Make(17);
  Row row(*optimizer, 17);
  row.Apply(*optimizer, MakeValues(3, 17), 1, 0.1f, 1);
  for (size_t i = 0; i < Row::kGuard; ++i) {
    ASSERT_EQ(row.weights[17 + i], Row::kGuardValue) << i;
    ASSERT_EQ(row.slots[row.slots.size() - 1 - i], Row::kGuardValue) << i;
  }
}

TEST_P(SparseOptimizerTest, ScaleMultipliesTheGradient) {
  const auto optimizer = Make(8);
  Row scaled(*optimizer, 8), halved(*optimizer, 8);
  auto gradient = MakeValues(4, 8);
  scaled.Apply(*optimizer, gradient, 1, 0.1f, 0.5f);
  for (float& g : gradient) g *= 0.5f;  // exact
  halved.Apply(*optimizer, gradient, 1, 0.1f, 1);
  EXPECT_EQ(scaled, halved);
}

TEST_P(SparseOptimizerTest, RowsDoNotShareState) {
  const auto optimizer = Make(4);
  Row used(*optimizer, 4), fresh(*optimizer, 4), alone(*optimizer, 4);
  const auto gradient = MakeValues(5, 4);
  for (uint64_t step = 1; step <= 3; ++step) used.Apply(*optimizer, gradient, step, 0.1f, 1);
  fresh.Apply(*optimizer, gradient, 4, 0.1f, 1);
  alone.Apply(*Make(4), gradient, 4, 0.1f, 1);
  EXPECT_EQ(fresh, alone);
}

class FtrlTest : public testing::Test {
 protected:
  std::vector<float> Train(const TableSpec& spec, std::vector<float> weights,
                           const std::vector<float>& gradient, int steps) {
    const auto optimizer = MakeSparseOptimizer(spec);
    std::vector<float> slots(optimizer->num_slot_values(spec.dim()));
    optimizer->Init(slots.data(), spec.dim());
    for (int step = 1; step <= steps; ++step) {
      optimizer->Apply(weights.data(), slots.data(), gradient.data(), spec.dim(),
                       static_cast<uint64_t>(step), 0.1f, 1);
    }
    return weights;
  }
};

TEST_F(FtrlTest, L1MakesExactZerosOfColumnsWithoutASignal) {
  TableSpec spec = MakeTableSpec(1, 4, SPARSE_FTRL);
  spec.set_l1(3);
  const auto weights = Train(spec, {0, 0, 0, 0}, {1, 0.25f, -1, 0}, 10);
  EXPECT_LT(weights[0], 0);
  EXPECT_EQ(weights[1], 0) << "10 * 0.25 is below l1";
  EXPECT_GT(weights[2], 0);
  EXPECT_EQ(weights[3], 0);
}

TEST_F(FtrlTest, GroupL1MakesWholeRowsZero) {
  TableSpec spec = MakeTableSpec(1, 3, SPARSE_GROUP_FTRL);
  spec.set_l1(0);
  spec.set_group_l1(0.5);
  EXPECT_EQ(Train(spec, {0.01f, -0.01f, 0.02f}, {0.01f, 0.01f, 0.01f}, 5),
            (std::vector<float>{0, 0, 0}));
  for (float w : Train(spec, {0.01f, -0.01f, 0.02f}, {1, -1, 0.5f}, 20)) EXPECT_NE(w, 0);
}

TEST_F(FtrlTest, WithoutPenaltiesItIsAdagradWithABetaFromTheFirstWeightsOn) {
  TableSpec spec = MakeTableSpec(1, 2, SPARSE_FTRL);
  spec.set_l1(0);
  spec.set_l2(0);
  spec.set_initial_accumulator(0);
  const auto weights = Train(spec, {0.5f, -0.25f}, {1, -2}, 2);
  EXPECT_NEAR(weights[0], 0.5 - 0.1 / 2 - 0.1 / (1 + std::sqrt(2.0)), 1e-6);
  EXPECT_NEAR(weights[1], -0.25 + 0.2 / 3 + 0.2 / (1 + std::sqrt(8.0)), 1e-6);
}

TEST_F(FtrlTest, AStepWithoutALearningRateChangesNothing) {
  const auto optimizer = MakeSparseOptimizer(MakeTableSpec(1, 2, SPARSE_FTRL));
  std::vector<float> weights = {1, 2}, slots(optimizer->num_slot_values(2));
  optimizer->Init(slots.data(), 2);
  const std::vector<float> gradient = {3, 4}, slots_before = slots;
  optimizer->Apply(weights.data(), slots.data(), gradient.data(), 2, 1, 0, 1);
  EXPECT_EQ(weights, (std::vector<float>{1, 2}));
  EXPECT_EQ(slots, slots_before);
}

// The gradients were computed at weights that other trainers have moved since.
TEST(DelayCompensatedSgdTest, AddsWhatTheWayFromTheShownWeightsChanges) {
  const TableSpec spec = MakeTableSpec(1, 1, SPARSE_DC_SGD);
  Table table(spec);
  const std::vector<uint64_t> ids = {3};
  float shown, first_gradient = 2, second_gradient = -1, now;
  table.Pull(1, ids, true, &shown);
  PushAndCommit(table, 1, 0.1f, ids, &first_gradient);
  table.Pull(0, ids, true, &now);  // whoever only looks does not train with it
  EXPECT_EQ(now, shown - 0.1f * 2);
  PushAndCommit(table, 1, 0.1f, ids, &second_gradient);
  const float moved = now;
  table.Pull(0, ids, true, &now);
  EXPECT_FLOAT_EQ(now, moved - 0.1f * (-1 + 0.5f * 1 * (moved - shown)));
  table.Pull(2, ids, true, &shown);
  PushAndCommit(table, 2, 0.1f, ids, &second_gradient);
  table.Pull(0, ids, true, &now);
  EXPECT_FLOAT_EQ(now, shown + 0.1f) << "nothing lies between: plain SGD";
}

TEST(DelayCompensatedSgdTest, ANewRowWasShownAsItIs) {
  Table pushed(MakeTableSpec(1, 3, SPARSE_DC_SGD)), plain(MakeTableSpec(1, 3, SPARSE_SGD));
  const std::vector<uint64_t> ids = {3};
  const auto gradient = MakeValues(1, 3);
  std::vector<float> a(3), b(3);
  PushAndCommit(pushed, 1, 0.1f, ids, gradient.data());
  PushAndCommit(plain, 1, 0.1f, ids, gradient.data());
  pushed.Pull(0, ids, false, a.data());
  plain.Pull(0, ids, false, b.data());
  EXPECT_EQ(a, b);
}

INSTANTIATE_TEST_SUITE_P(All, SparseOptimizerTest, testing::ValuesIn(kKinds),
                         [](const auto& info) { return info.param.name; });

TEST(CheckOptimizerTest, NamesTheFieldThatIsWrong) {
  TableSpec spec = MakeTableSpec(1, 4, SPARSE_ADAM);
  spec.set_beta2(1);
  EXPECT_NE(CheckOptimizer(spec).message().find("beta2"), absl::string_view::npos);
  spec = MakeTableSpec(1, 4, SPARSE_ADAGRAD);
  spec.set_epsilon(0);
  EXPECT_NE(CheckOptimizer(spec).message().find("epsilon"), absl::string_view::npos);
  spec.set_epsilon(std::nanf(""));
  EXPECT_FALSE(CheckOptimizer(spec).ok());
  spec = MakeTableSpec(1, 4, SPARSE_OPTIMIZER_UNSPECIFIED);
  EXPECT_TRUE(absl::IsInvalidArgument(CheckOptimizer(spec)));
  spec = MakeTableSpec(1, 4, SPARSE_DC_SGD + 1);
  EXPECT_TRUE(absl::IsInvalidArgument(CheckOptimizer(spec)));
}

TEST(CheckOptimizerTest, EveryNumberHasItsLimits) {
  const auto refused = [](int optimizer, const char* field, auto set, float value) {
    TableSpec spec = MakeTableSpec(1, 4, optimizer);
    EXPECT_TRUE(CheckOptimizer(spec).ok()) << CheckOptimizer(spec);
    (spec.*set)(value);
    EXPECT_NE(CheckOptimizer(spec).message().find(field), absl::string_view::npos)
        << field << " " << value;
  };
  for (float bad : {-1.0f, std::nanf("")}) {
    refused(SPARSE_MOMENTUM, "momentum", &TableSpec::set_momentum, bad);
    refused(SPARSE_RMSPROP, "rho", &TableSpec::set_rho, bad);
    refused(SPARSE_ADADELTA, "epsilon", &TableSpec::set_epsilon, bad);
    refused(SPARSE_FTRL, "beta", &TableSpec::set_beta, bad);
    refused(SPARSE_FTRL, "l1", &TableSpec::set_l1, bad);
    refused(SPARSE_GROUP_FTRL, "l2", &TableSpec::set_l2, bad);
    refused(SPARSE_GROUP_FTRL, "group_l1", &TableSpec::set_group_l1, bad);
    refused(SPARSE_FTRL, "initial_accumulator", &TableSpec::set_initial_accumulator, bad);
    refused(SPARSE_DC_SGD, "delay_compensation", &TableSpec::set_delay_compensation, bad);
    refused(SPARSE_ADAMW, "weight_decay", &TableSpec::set_weight_decay, bad);
  }
  refused(SPARSE_NESTEROV, "momentum", &TableSpec::set_momentum, 1);
  refused(SPARSE_FTRL, "beta", &TableSpec::set_beta, 0);
  refused(SPARSE_ADAM, "weight_decay", &TableSpec::set_weight_decay, 0.1f);
}

TEST(CheckOptimizerTest, ModesThatHaveNoMeaningSayWhatIsAllowed) {
  for (auto mode : {TableSpec::CATCH_UP, TableSpec::DENSE_EQUIVALENT}) {
    for (int optimizer : {SPARSE_FTRL, SPARSE_GROUP_FTRL, SPARSE_DC_SGD}) {
      TableSpec spec = MakeTableSpec(1, 4, optimizer);
      spec.set_mode(mode);
      EXPECT_NE(CheckOptimizer(spec).message().find("must be LAZY with "), absl::string_view::npos)
          << CheckOptimizer(spec);
    }
  }
  TableSpec spec = MakeTableSpec(1, 4, SPARSE_ADAM);
  spec.set_storage(STORED_INT8);
  spec.set_mode(TableSpec::CATCH_UP);
  EXPECT_TRUE(CheckOptimizer(spec).ok());
  spec.set_mode(TableSpec::DENSE_EQUIVALENT);
  EXPECT_NE(CheckOptimizer(spec).message().find("storage is INT8"), absl::string_view::npos);
  spec.set_mode(static_cast<TableSpec::Mode>(3));
  EXPECT_NE(CheckOptimizer(spec).message().find("mode"), absl::string_view::npos);
}

TEST(NameOfOptimizerTest, IsTheJobs) {
  EXPECT_EQ(NameOf(SPARSE_ROWWISE_ADAGRAD), "ROWWISE_ADAGRAD");
  EXPECT_EQ(NameOf(static_cast<tandem::SparseOptimizer>(99)), "99");
}

}  // namespace
}  // namespace tandem::ps
