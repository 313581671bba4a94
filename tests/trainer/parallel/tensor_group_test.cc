// Tensor and sequence parallelism with integer operands, whose sums are exact in f32 in any order:
// every layout gives the bits of one process.
#include "trainer/parallel/tensor/tensor_group.h"

#include <gtest/gtest.h>
#include <thread>

#include "tests/trainer/autograd/gradient_check.h"
#include "trainer/autograd/engine.h"
#include "trainer/comm/host/thread_group.h"
#include "trainer/comm/solo_group.h"
#include "trainer/nn/layers.h"
#include "trainer/optim/dense_optimizer.h"
#include "trainer/parallel/data_parallel/ddp.h"
#include "trainer/parallel/mesh.h"
#include "trainer/parallel/zero/zero.h"

namespace tandem {
namespace {

using ::tandem::testing::StepFixture;

constexpr int64_t kRows = 13, kSymbols = 7, kDim = 4, kHidden = 8;

struct Layout {
  parallel::MeshShape shape;
  bool cut_rows = false;
  int zero = 0;
};

// A number in -3 .. 3.
float Small(uint64_t seed, int64_t i) {
  return static_cast<float>(RandomBelow({seed, 5}, 0, static_cast<uint64_t>(i), 7)) - 3;
}

// Embedding, column and row linear with ReLU between them, and scores against the embedding.
struct Model {
  ParameterSet parameters{1, DType::F32};
  const parallel::TensorGroup* tp;
  IndexRange symbols;
  Variable table;
  nn::Linear up;
  nn::RowLinear down;

  explicit Model(const parallel::TensorGroup* group)
      : tp(group),
        symbols(nn::PartOf(kSymbols, group)),
        table(parameters.Constant("table", nn::CutPart(Shape{kSymbols, kDim}, 0, {symbols}, group),
                                  0)),
        up(nn::ColumnLinear(parameters, "up", kDim, kHidden, {{nn::PartOf(kHidden, group)}}, {},
                            group)),
        down(parameters, "down", kHidden, kDim, {}, group) {
    uint64_t seed = 10;
    for (const auto& parameter : parameters.all()) {
      ++seed;
      float* const to = parameter->variable.value().data<float>();
      parameter->slice.ForEachRun(0, parameter->num_elements(),
                                  [&](int64_t local, int64_t logical, int64_t count) {
                                    for (int64_t i = 0; i < count; ++i)
                                      to[local + i] = Small(seed, logical + i);
                                  });
    }
  }
  // Rows begin .. end - 1 of the batch -> [rows, kDim], all rows on each rank.
  Variable Forward(Context& context, int64_t begin, int64_t end) const {
    const Tensor index = Tensor::Empty(Shape{end - begin}, DType::I64);
    for (int64_t r = begin; r < end; ++r) index.data<int64_t>()[r - begin] = 3 * r % kSymbols;
    const Variable rows = tp == nullptr ? ops::GatherRows(context, table, index)
                                        : tp->GatherRows(context, table, symbols.begin, index);
    const nn::PackedRows places{.offsets = {}, .positions = {}, .row_index = index};
    const Variable hidden = up.ForwardActivated(context, nn::EnterCut(context, rows, places, tp),
                                                kernels::Activation::RELU);
    const Variable sum = ops::Add(context, rows, down.Forward(context, hidden));
    return tp == nullptr ? sum : tp->Join(context, sum, end - begin);
  }
};

// Two steps of SGD. Adds this rank's parameters to their logical places in `weights`.
void TrainRank(const Layout& layout, comm::ProcessGroup* world,
               std::vector<std::vector<float>>* weights, std::mutex* mutex) {
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  const auto mesh = parallel::Mesh::Create(layout.shape, world, Device{}, deadline);
  ASSERT_TRUE(mesh.ok()) << mesh.status();
  std::optional<parallel::TensorGroup> tp;
  if (layout.shape.tp > 1) tp.emplace(&(*mesh)->tp(), layout.cut_rows);
  const Model model(tp.has_value() ? &*tp : nullptr);
  auto& parameters = const_cast<ParameterSet&>(model.parameters);
  const auto holders =
      parallel::HolderGroups::Create(parameters, &(*mesh)->tp(), &(*mesh)->pp(), deadline);
  ASSERT_TRUE(holders.ok()) << holders.status();
  StepFixture fixture;
  comm::ProcessGroup& dp = (*mesh)->dp();
  std::unique_ptr<parallel::GradientSync> sync;
  std::vector<optim::ElementRange> updated = optim::WholeArrays(parameters.pointers());
  if (layout.zero) {
    const parallel::FlatLayout flat =
        parallel::ZeroLayout(parameters.pointers(), dp.size(), layout.zero);
    updated = RangesOfPart(flat, parameters.pointers(), dp.rank(), dp.size());
    auto made = parallel::Zero::Create(&parameters, flat, &dp, holders->get(), &fixture.stream(),
                                       {.stage = layout.zero});
    ASSERT_TRUE(made.ok()) << made.status();
    sync = *std::move(made);
  } else {
    auto made = parallel::Ddp::Create(&parameters, parameters.pointers(), &dp, holders->get(),
                                      &fixture.stream(), {});
    ASSERT_TRUE(made.ok()) << made.status();
    sync = *std::move(made);
  }
  optim::DenseOptimizer sgd({.kind = optim::Kind::SGD}, &parameters, updated);
  for (uint64_t step = 1; step <= 2; ++step) {
    Context context(fixture.Options(step));
    const int64_t begin = dp.rank() * kRows / dp.size(), end = (dp.rank() + 1) * kRows / dp.size();
    sync->BeginStep(1);
    sync->BeginPass(context, 0);
    const Variable output = model.Forward(context, begin, end);
    const Tensor gradient = Tensor::Empty(output.shape(), DType::F32);
    for (int64_t i = 0; i < gradient.num_elements(); ++i)
      gradient.data<float>()[i] = Small(20 + step, begin * kDim + i);
    Backward(context, {{output, gradient}});
    sync->Finish(context);
    ASSERT_TRUE(context.status().ok()) << context.status();
    sgd.Update(step, /*learning_rate=*/1.0 / 64, /*scale=*/1, fixture.stream());
    sync->PullWeights(step + 1);
    ASSERT_TRUE(sync->AwaitWeights(deadline).ok());
  }
  // A read may be collective, so all come before the lock.
  std::vector<Tensor> values;
  for (const auto& parameter : parameters.all())
    values.push_back(parameter->variable.value().Clone());
  const std::lock_guard<std::mutex> lock(*mutex);
  weights->resize(parameters.all().size());
  for (size_t p = 0; p < parameters.all().size(); ++p) {
    const Parameter& parameter = *parameters.all()[p];
    std::vector<float>& whole = (*weights)[p];
    whole.resize(static_cast<size_t>(parameter.slice.logical().num_elements()));
    const float* const from = values[p].data<float>();
    parameter.slice.ForEachRun(0, parameter.num_elements(),
                               [&](int64_t local, int64_t logical, int64_t count) {
                                 std::copy_n(from + local, count, whole.begin() + logical);
                               });
  }
}

std::vector<std::vector<float>> Train(const Layout& layout) {
  std::vector<std::vector<float>> weights;
  std::mutex mutex;
  const auto groups = comm::ThreadGroup::Create(layout.shape.size(), "ranks");
  std::vector<std::thread> threads;
  for (const auto& group : groups)
    threads.emplace_back([&, world = group.get()] { TrainRank(layout, world, &weights, &mutex); });
  for (std::thread& thread : threads) thread.join();
  return weights;
}

TEST(TensorGroupTest, IntegerOperandsGiveTheSameBitsInEveryLayout) {
  const auto serial = Train({});
  ASSERT_EQ(serial.size(), 5u);
  for (const int tp : {1, 2, 4}) {
    for (const int dp : {1, 2, 3}) {
      for (const bool cut_rows : {false, true}) {
        for (const int zero : {0, 1, 2, 3}) {
          if (dp * tp > 8 || (tp == 1 && cut_rows)) continue;
          EXPECT_EQ(Train({.shape = {.tp = tp, .dp = dp}, .cut_rows = cut_rows, .zero = zero}),
                    serial)
              << "tp " << tp << " dp " << dp << " cut rows " << cut_rows << " zero " << zero;
        }
      }
    }
  }
}

TEST(TensorGroupTest, AParameterWithoutARecordIsRefusedByName) {
  const auto groups = comm::ThreadGroup::Create(2, "ranks");
  ParameterSet parameters(1, DType::F32);
  parameters.Constant("known", ParameterPart(ParameterSlice(Shape{2}), {.holders = 2}), 0);
  parameters.Constant("forgotten", Shape{2}, 0);
  comm::SoloGroup alone("pp");
  const auto made = parallel::HolderGroups::Create(parameters, groups[0].get(), &alone,
                                                   absl::Now() + absl::Seconds(5));
  EXPECT_EQ(made.status(),
            absl::InvalidArgumentError(
                "parallel.tp is 2, but the model does not say which ranks hold forgotten: its "
                "gradient record has 0 holders; allowed: a divisor of tp"));
}

}  // namespace
}  // namespace tandem
