// One suite over every sparse optimizer: its slots, its one-step closed form, and what no optimizer may do.
#include "ps/optimizer/sparse_optimizer.h"

#include <cmath>
#include <cstring>

#include "gtest/gtest.h"
#include "tests/ps/spec.h"

namespace tandem::ps {
namespace {

struct Kind {
  const char* name;
  tandem::SparseOptimizer value;
  int num_slots;
  float initial_slot;
  // The weight after one step from `w`, with scaled gradient g and learning rate lr.
  double (*first_step)(double w, double g, double lr);
};

const Kind kKinds[] = {
    {"Sgd", SPARSE_SGD, 0, 0, [](double w, double g, double lr) { return w - lr * g; }},
    {"Adagrad", SPARSE_ADAGRAD, 1, 0.1f,
     [](double w, double g, double lr) { return w - lr * g / (std::sqrt(0.1 + g * g) + 1e-8); }},
    // In the first step the bias corrections undo the averaging: m/(1-b1) = g, v/(1-b2) = g^2.
    {"Adam", SPARSE_ADAM, 2, 0, [](double w, double g, double lr) { return w - lr * g / (std::fabs(g) + 1e-8); }},
};

class SparseOptimizerTest : public testing::TestWithParam<Kind> {
 protected:
  // A record with a guard behind it.
  struct Record {
    explicit Record(const RowLayout& layout) : bytes(layout.stride() + 64, 0x5a), row(layout.View(bytes.data())) {}
    std::vector<char> bytes;
    RowView row;
  };
  std::unique_ptr<SparseOptimizer> Make(uint32_t dim) {
    return MakeSparseOptimizer(MakeTableSpec(1, dim, GetParam().value));
  }
};

TEST_P(SparseOptimizerTest, InitFillsTheSlotsAndNothingElse) {
  for (uint32_t dim : {1, 3, 16, 65}) {
    const auto optimizer = Make(dim);
    ASSERT_EQ(optimizer->num_slots(), GetParam().num_slots);
    const RowLayout layout(dim, optimizer->num_slots());
    Record record(layout), untouched(layout);
    optimizer->Init(record.row);
    for (size_t i = 0; i < dim * static_cast<size_t>(GetParam().num_slots); ++i) {
      EXPECT_EQ(record.row.slots[i], GetParam().initial_slot);
    }
    EXPECT_EQ(0, std::memcmp(record.row.weights, untouched.row.weights, dim * sizeof(float)));
    EXPECT_EQ(0, std::memcmp(record.bytes.data() + layout.stride(), untouched.bytes.data() + layout.stride(), 64));
  }
}

TEST_P(SparseOptimizerTest, FirstStepMatchesTheFormula) {
  for (uint32_t dim : {1, 3, 16, 65}) {
    const auto optimizer = Make(dim);
    Record record(RowLayout(dim, optimizer->num_slots()));
    optimizer->Init(record.row);
    const auto weights = MakeValues(1, dim), gradient = MakeValues(2, dim);
    std::memcpy(record.row.weights, weights.data(), dim * sizeof(float));
    optimizer->Apply(record.row, gradient.data(), 1, 0.01f, 0.25f);
    for (uint32_t i = 0; i < dim; ++i) {
      EXPECT_NEAR(record.row.weights[i], GetParam().first_step(weights[i], 0.25 * gradient[i], 0.01), 2e-6) << i;
    }
  }
}

TEST_P(SparseOptimizerTest, NeverWritesBeyondTheRow) {
  const auto optimizer = Make(17);
  const RowLayout layout(17, optimizer->num_slots());
  Record record(layout);
  optimizer->Init(record.row);
  const auto gradient = MakeValues(3, 17);
  const size_t used = layout.weights_offset() + sizeof(float) * 17 * (1 + static_cast<size_t>(optimizer->num_slots()));
  optimizer->Apply(record.row, gradient.data(), 1, 0.1f, 1);
  for (size_t i = used; i < record.bytes.size(); ++i) ASSERT_EQ(record.bytes[i], 0x5a) << i;
  for (size_t i = 0; i < layout.weights_offset(); ++i) ASSERT_EQ(record.bytes[i], 0x5a) << i;
}

TEST_P(SparseOptimizerTest, ScaleMultipliesTheGradient) {
  const auto optimizer = Make(8);
  const RowLayout layout(8, optimizer->num_slots());
  Record scaled(layout), halved(layout);
  auto gradient = MakeValues(4, 8);
  for (Record* record : {&scaled, &halved}) {
    optimizer->Init(record->row);
    std::fill_n(record->row.weights, 8, 1.0f);
  }
  optimizer->Apply(scaled.row, gradient.data(), 1, 0.1f, 0.5f);
  for (float& g : gradient) g *= 0.5f;  // exact
  optimizer->Apply(halved.row, gradient.data(), 1, 0.1f, 1);
  EXPECT_EQ(scaled.bytes, halved.bytes);
}

TEST_P(SparseOptimizerTest, RowsDoNotShareState) {
  const auto optimizer = Make(4);
  const RowLayout layout(4, optimizer->num_slots());
  Record used(layout), fresh(layout), alone(layout);
  const auto gradient = MakeValues(5, 4);
  for (Record* record : {&used, &fresh, &alone}) {
    optimizer->Init(record->row);
    std::fill_n(record->row.weights, 4, 1.0f);
  }
  for (uint64_t step = 1; step <= 3; ++step) optimizer->Apply(used.row, gradient.data(), step, 0.1f, 1);
  optimizer->Apply(fresh.row, gradient.data(), 4, 0.1f, 1);
  Make(4)->Apply(alone.row, gradient.data(), 4, 0.1f, 1);
  EXPECT_EQ(fresh.bytes, alone.bytes);
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
}

}  // namespace
}  // namespace tandem::ps
