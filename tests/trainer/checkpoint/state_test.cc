// Puts a checkpoint's contents back into a model: all of them, or none if they do not fit.
#include <cmath>
#include <cstring>

#include "tests/trainer/checkpoint/file_damage.h"
#include "tests/trainer/checkpoint/small_checkpoint.h"
#include "tests/trainer/checkpoint/spoiled_checkpoint.h"

namespace tandem::checkpoint {
namespace {

class StateTest : public CheckpointTest {
 protected:
  Checkpoint Open() {
    const auto checkpoint = OpenCheckpoint(folder_.path(), Choice::NEWEST);
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    return *checkpoint;
  }

  // Expects a refusal with `word` and an unchanged `model`.
  void ExpectRefused(ParameterSet& model, const char* word, optim::Kind kind = optim::Kind::ADAM) {
    optim::DenseOptimizer optimizer({.kind = kind}, &model);
    const absl::uint128 before = optimizer.State().Hash();
    for (bool state : {false, true}) {
      if (!state && kind != optim::Kind::ADAM) continue;  // parameters do not care
      const absl::Status status =
          state ? LoadState(Open(), optimizer.State()) : LoadParameters(Open(), model);
      EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
      EXPECT_NE(status.message().find(word), absl::string_view::npos)
          << status << "\nwanted: " << word;
      EXPECT_NE(status.message().find("step-00000002/dense.safetensors"), absl::string_view::npos)
          << status;
    }
    EXPECT_EQ(optimizer.State().Hash(), before);
  }
};

TEST_F(StateTest, RunGoesOnBitForBit) {
  TrainAndWrite(2);
  const absl::uint128 saved = run_.Hash();
  for (int num_workers : {1, 3}) {
    SmallRun resumed(num_workers, /*seed=*/99);
    EXPECT_NE(resumed.Hash(), saved);
    ASSERT_TRUE(LoadState(Open(), resumed.optimizer().State()).ok());
    const absl::Status rows = LoadRows(Open(), resumed.tables(), absl::Now() + absl::Seconds(30));
    ASSERT_TRUE(rows.ok()) << rows;
    EXPECT_EQ(resumed.Hash(), saved);
    SmallRun unbroken;
    for (uint64_t step = 1; step <= 6; ++step) unbroken.Train(step);
    for (uint64_t step = 3; step <= 6; ++step) resumed.Train(step);
    EXPECT_EQ(resumed.Hash(), unbroken.Hash());
  }
}

TEST_F(StateTest, ParametersAloneLeaveTheSlots) {
  TrainAndWrite(2);
  SmallRun other(1, /*seed=*/99);
  other.Train(1);
  const double slot = other.optimizer().slots(0)[0].At(0);
  ASSERT_TRUE(LoadParameters(Open(), other.parameters()).ok());
  EXPECT_EQ(other.optimizer().slots(0)[0].At(0), slot);
  for (size_t i = 0; i < 2; ++i) {
    const Tensor& a = run_.parameters().all()[i]->variable.value();
    const Tensor& b = other.parameters().all()[i]->variable.value();
    EXPECT_EQ(0, std::memcmp(a.raw(), b.raw(), a.num_bytes()));
  }
}

TEST_F(StateTest, ParametersDoNotNeedTheOptimizerOfTheRun) {
  TrainAndWrite(2);
  SmallRun other(1, /*seed=*/99, optim::Kind::SGD);
  EXPECT_TRUE(LoadParameters(Open(), other.parameters()).ok());
}

TEST_F(StateTest, AnotherModelIsRefusedAndNothingChanges) {
  TrainAndWrite(2);
  ParameterSet more(2, DType::F32), fewer(2, DType::F32), shape(2, DType::F32),
      dtype(2, DType::F64);
  for (ParameterSet* model : {&more, &fewer, &shape, &dtype})
    model->Normal("layer.weight", Shape{4, 3}, 1);
  for (ParameterSet* model : {&more, &dtype}) model->Constant("layer.bias", Shape{3}, 0);
  more.Constant("layer.extra", Shape{1}, 0);
  shape.Constant("layer.bias", Shape{4}, 0);
  ExpectRefused(more, "has no parameter layer.extra");
  ExpectRefused(fewer, "has a parameter layer.bias");
  ExpectRefused(shape, "parameter layer.bias is f32 [3], in the job's model f32 [4]");
  ExpectRefused(dtype, "f64");
}

TEST_F(StateTest, AnotherOptimizerIsRefusedByItsSlots) {
  TrainAndWrite(2);
  for (auto [kind, word] :
       {std::pair(optim::Kind::SGD, "slots {m, v} of ADAM, the job's optimizer has {}"),
        std::pair(optim::Kind::ADAGRAD,
                  "slots {m, v} of ADAM, the job's optimizer has {accumulator}")}) {
    SmallRun other(1, 99, kind);
    ExpectRefused(other.parameters(), word, kind);
  }
}

TEST_F(StateTest, RowsThatDoNotFitNameTheCheckpoint) {
  TrainAndWrite(2);
  run_.Train(3);
  const absl::Status begun = LoadRows(Open(), run_.tables(), absl::Now() + absl::Seconds(30));
  EXPECT_TRUE(absl::IsFailedPrecondition(begun)) << begun;
  EXPECT_EQ(begun.message().find("checkpoint " + folder_.path()), 0u) << begun;
  SmallRun other;
  Checkpoint gone = Open();
  gone.folder += "-gone";
  const absl::Status missing = LoadRows(gone, other.tables(), absl::Now() + absl::Seconds(30));
  EXPECT_TRUE(absl::IsFailedPrecondition(missing)) << missing;
  EXPECT_NE(missing.message().find(".rows: cannot be read"), absl::string_view::npos) << missing;
}

TEST_F(StateTest, ANumberThatIsNotFiniteIsNotWrittenAndTheOlderCheckpointStays) {
  const Tensor weight = run_.parameters().all()[0]->variable.value(),
               slot = run_.optimizer().slots(1)[1];
  TrainAndWrite(1);
  Train(2);
  for (const auto& [tensor, word] : {std::pair(weight, "parameter layer.weight is not finite"),
                                     std::pair(slot, "layer.bias#v is not finite")}) {
    for (const double bad : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
      const double good = tensor.At(tensor.num_elements() - 1);
      tensor.Set(tensor.num_elements() - 1, bad);
      const absl::Status written = Write(2);
      EXPECT_TRUE(absl::IsOutOfRange(written)) << written;
      EXPECT_NE(written.message().find(word), absl::string_view::npos) << written;
      tensor.Set(tensor.num_elements() - 1, good);
    }
  }
  EXPECT_EQ(Names(folder_.path()), std::vector<std::string>{"step-00000001"});
  EXPECT_TRUE(Write(2).ok());
}

TEST_F(StateTest, ANumberThatIsNotFiniteIsRefusedByNameAndNothingChanges) {
  TrainAndWrite(2);
  SpoilTensor(folder_ / "step-00000002", "layer.bias");
  SmallRun other(1, /*seed=*/99);
  ExpectRefused(other.parameters(),
                "parameter layer.bias is not finite (NaN or infinity); take another checkpoint");
}

TEST_F(StateTest, ASlotThatIsNotFiniteIsRefusedOnlyWhereSlotsAreLoaded) {
  TrainAndWrite(2);
  SpoilTensor(folder_ / "step-00000002", "layer.bias#m");
  SmallRun other(1, /*seed=*/99);
  EXPECT_TRUE(LoadParameters(Open(), other.parameters()).ok());
  const absl::Status state = LoadState(Open(), other.optimizer().State());
  EXPECT_TRUE(absl::IsFailedPrecondition(state)) << state;
  EXPECT_NE(state.message().find("parameter layer.bias#m is not finite"), absl::string_view::npos)
      << state;
}

}  // namespace
}  // namespace tandem::checkpoint
