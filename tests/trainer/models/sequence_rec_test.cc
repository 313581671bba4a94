#include "trainer/models/sequence_rec.h"

#include <cmath>
#include <condition_variable>
#include <gtest/gtest.h>
#include <map>
#include <mutex>
#include <thread>

#include "kernels/memory/block_cache.h"
#include "tests/trainer/autograd/gradient_check.h"
#include "tests/trainer/models/plain_layers.h"
#include "trainer/optim/dense_optimizer.h"

namespace tandem {
namespace {

using ::tandem::testing::CheckGradients;
using ::tandem::testing::RandomTensor;
using ::tandem::testing::StepFixture;

constexpr int64_t kMaxLength = 6, kItems = 9;

// Three users with 4, 1 and 6 items, packed; positions count so that the last item has the highest.
models::SequenceInput MakeInput(bool bce) {
  const std::vector<int64_t> lengths{4, 1, 6};
  std::vector<int64_t> offsets{0}, positions, row_index, items, targets, negatives;
  for (size_t s = 0; s < lengths.size(); ++s) {
    for (int64_t i = 0; i < lengths[s]; ++i) {
      positions.push_back(kMaxLength - lengths[s] + i);
      row_index.push_back(static_cast<int64_t>(s) * kMaxLength + positions.back());
      items.push_back((i * 3 + static_cast<int64_t>(s) * 2) % kItems);
      targets.push_back((i * 5 + 1) % kItems);
      negatives.push_back((i * 7 + 4) % kItems);
    }
    offsets.push_back(offsets.back() + lengths[s]);
  }
  models::SequenceInput input;
  input.rows = {Tensor::FromVector(offsets), Tensor::FromVector(positions),
                Tensor::FromVector(row_index), kMaxLength};
  input.inputs = Tensor::FromVector(items);
  input.targets = Tensor::FromVector(targets);
  input.negatives = bce ? Tensor::FromVector(negatives) : Tensor::FromVector<int64_t>({1, 4, 8});
  return input;
}

models::SequenceRecOptions SmallOptions(models::SequenceLossKind loss, float dropout) {
  return {.dim = 4,
          .max_length = kMaxLength,
          .layers = 2,
          .heads = 2,
          .ffn_dim = 6,
          .dropout = dropout,
          .norm_epsilon = 1e-6,
          .init_stddev = 0.4,
          .loss = loss};
}

TEST(SequenceRecTest, GradientsOfEveryLossAndParameter) {
  for (auto loss : {models::SequenceLossKind::BCE, models::SequenceLossKind::SAMPLED_SOFTMAX,
                    models::SequenceLossKind::FULL_SOFTMAX}) {
    ParameterSet parameters(5, DType::F64);
    const models::SequenceRec model(SmallOptions(loss, 0.2f), parameters);
    const Variable items =
        Variable::Leaf(RandomTensor(Shape{kItems, 4}, 7, DType::F64, 0.5), "items");
    const models::SequenceInput input = MakeInput(loss == models::SequenceLossKind::BCE);
    std::vector<Variable> leaves{items};
    for (const auto& parameter : parameters.all()) leaves.push_back(parameter->variable);
    CheckGradients([&](Context& c) { return model.LossSum(c, items, input); }, leaves, 2e-5);
  }
}

// An independent forward pass in double precision: padded, one user at a time, with full attention
// matrices.
// Follows the recipe's text and shares no code with the kernels.
class PaddedReference : private PlainLayers {
 public:
  PaddedReference(const ParameterSet& parameters, const Tensor& items)
      : PlainLayers(parameters, 1e-6), items_(items) {}

  std::vector<double> LastState(const std::vector<int64_t>& history) const {
    const int64_t pad = kMaxLength - static_cast<int64_t>(history.size());
    Matrix x(kMaxLength, std::vector<double>(4, 0));
    for (int64_t t = pad; t < kMaxLength; ++t) {
      for (int f = 0; f < 4; ++f)
        x[t][f] = items_.At(history[t - pad] * 4 + f) + At("embedding.positions", t * 4 + f);
    }
    x = Norm(x, "embedding.norm");
    for (const std::string block : {"blocks.0", "blocks.1"}) {
      x = Norm(Plus(x, Project(Attend(Project(x, block + ".attention.qkv"), pad),
                               block + ".attention.output")),
               block + ".attention_norm");
      Matrix inner = Project(x, block + ".ffn.up");
      for (auto& row : inner) {
        for (double& v : row) v = v * 0.5 * std::erfc(-v / std::sqrt(2.0));
      }
      x = Norm(Plus(x, Project(inner, block + ".ffn.down")), block + ".ffn_norm");
    }
    return x[kMaxLength - 1];
  }

 private:
  static Matrix Attend(const Matrix& qkv, int64_t pad) {
    Matrix y(qkv.size(), std::vector<double>(4, 0));
    for (int head = 0; head < 2; ++head) {
      for (int64_t t = pad; t < kMaxLength; ++t) {
        std::vector<double> weight(kMaxLength, 0);
        double sum = 0;
        for (int64_t j = pad; j <= t; ++j) {
          double score = 0;
          for (int f = 0; f < 2; ++f) score += qkv[t][head * 2 + f] * qkv[j][4 + head * 2 + f];
          sum += weight[j] = std::exp(score / std::sqrt(2.0));
        }
        for (int64_t j = pad; j <= t; ++j) {
          for (int f = 0; f < 2; ++f)
            y[t][head * 2 + f] += weight[j] / sum * qkv[j][8 + head * 2 + f];
        }
      }
    }
    return y;
  }

  Tensor items_;
};

TEST(SequenceRecTest, LogitsAgreeWithAnIndependentPaddedDoubleForward) {
  ParameterSet parameters(5, DType::F32);
  const models::SequenceRec model(SmallOptions(models::SequenceLossKind::BCE, 0.5f), parameters);
  const Tensor items = RandomTensor(Shape{kItems, 4}, 7, DType::F32);
  const models::SequenceInput input = MakeInput(true);
  StepFixture fixture;
  Context context(fixture.Options(1, /*training=*/false));
  const Tensor states = model.LastStates(
      context, model.StageRows(context, Variable::Constant(items), Variable(), input), input);
  const PaddedReference reference(parameters, items);
  for (int64_t s = 0; s < 3; ++s) {
    std::vector<int64_t> history;
    for (int64_t t = input.rows.offsets.data<int64_t>()[s];
         t < input.rows.offsets.data<int64_t>()[s + 1]; ++t) {
      history.push_back(input.inputs.data<int64_t>()[t]);
    }
    const std::vector<double> expected = reference.LastState(history);
    for (int64_t item = 0; item < kItems; ++item) {
      double logit = 0, want = 0;
      for (int f = 0; f < 4; ++f) {
        logit += states.At(s * 4 + f) * items.At(item * 4 + f);
        want += expected[f] * items.At(item * 4 + f);
      }
      EXPECT_NEAR(logit, want, 2e-5) << "user " << s << " item " << item;
    }
  }
}

TEST(SequenceRecTest, ABatchWithoutTokensHasZeroLossAndZeroGradients) {
  ParameterSet parameters(5, DType::F32);
  const models::SequenceRec model(SmallOptions(models::SequenceLossKind::BCE, 0.5f), parameters);
  models::SequenceInput input;
  const Tensor none = Tensor::Empty(Shape{0}, DType::I64);
  input.rows = {Tensor::FromVector<int64_t>({0}), none, none, kMaxLength};
  input.inputs = input.targets = input.negatives = none;
  StepFixture fixture;
  Context context(fixture.Options());
  const Variable items = Variable::Leaf(RandomTensor(Shape{0, 4}, 7, DType::F32), "items");
  const Variable loss = model.LossSum(context, items, input);
  EXPECT_EQ(loss.value().At(0), 0);
  Backward(context, loss);
  for (const auto& parameter : parameters.all()) {
    ASSERT_TRUE(parameter->variable.leaf().has_gradient()) << parameter->name;
    for (int64_t i = 0; i < parameter->shape().num_elements(); ++i) {
      EXPECT_EQ(parameter->variable.leaf().gradient().At(i), 0) << parameter->name;
    }
  }
}

// A loader thread makes the batches, and the step's thread frees them.
TEST(SequenceRecTest, StepsAfterTheFirstTakeNoMemoryFromTheSystem) {
#ifdef TANDEM_SANITIZED
  GTEST_SKIP() << "sanitizer builds keep no idle blocks";
#endif
  ParameterSet parameters(5, DType::F32);
  const models::SequenceRec model(SmallOptions(models::SequenceLossKind::BCE, 0.5f), parameters);
  optim::DenseOptimizer optimizer({.kind = optim::Kind::ADAMW}, &parameters);
  StepFixture fixture;
  constexpr int kSteps = 6;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<models::SequenceInput> made;
  uint64_t blocks = 0;
  std::thread loader([&] {
    for (int step = 0; step < kSteps; ++step) {
      std::unique_lock<std::mutex> lock(mutex);
      changed.wait(lock, [&] { return made.empty(); });
      made.push_back(MakeInput(true));
      changed.notify_all();
    }
  });
  for (int step = 1; step <= kSteps; ++step) {
    if (step == 3) blocks = BlockCache::num_system_blocks();
    {
      std::unique_lock<std::mutex> lock(mutex);
      changed.wait(lock, [&] { return !made.empty(); });
      const models::SequenceInput input = made.back();
      Context context(fixture.Options(static_cast<uint64_t>(step)));
      const Variable items = Variable::Leaf(RandomTensor(Shape{kItems, 4}, 7, DType::F32), "items");
      parameters.ClearGradients();
      Backward(context, model.LossSum(context, items, input));
      optimizer.Update(context.step(), 1e-3, 1, fixture.stream());
      made.clear();
    }
    changed.notify_all();
  }
  loader.join();
  EXPECT_EQ(BlockCache::num_system_blocks(), blocks);
}

}  // namespace
}  // namespace tandem
