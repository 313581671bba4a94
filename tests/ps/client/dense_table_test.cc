// Dense tables: trainers assign their rows and read them with their slots. Other trainers' hash and
// save leave them out.
#include <bit>
#include <filesystem>

#include "gtest/gtest.h"
#include "ps/client/clients.h"
#include "ps/local/local_client.h"
#include "tests/ps/cluster.h"
#include "tests/ps/spec.h"
#include "tests/support/temp_folder.h"

namespace tandem::ps {
namespace {

constexpr uint32_t kDim = 6, kDense = 2;
constexpr size_t kWidth = 3 * kDim;  // with Adam's m and v
constexpr size_t kRows = 40;

absl::Time Deadline() { return absl::Now() + absl::Seconds(30); }

std::vector<TableSpec> Specs() {
  std::vector<TableSpec> specs = {MakeTableSpec(1, 4), MakeTableSpec(kDense, kDim, SPARSE_ADAM)};
  specs[1].set_dense(true);
  return specs;
}

CommitArgs Args(uint64_t step) { return {step, {{1, 0.1}, {kDense, 0.1}}, 1, false}; }

std::vector<uint64_t> Chunks(size_t count) {
  std::vector<uint64_t> ids;
  for (uint64_t id = 1; id <= count; ++id) ids.push_back(id);
  return ids;
}

// One trainer on GetParam() servers, with messages of a few rows, or, for 0, on a local host.
// PaddlePaddle/Paddle#21216 sends all of a model in one message.
class DenseTableTest : public testing::TestWithParam<int> {
 protected:
  DenseTableTest() : cluster_(std::max(1, GetParam()), 2) {
    if (GetParam() > 0)
      client_ = cluster_.MakeClient(0, 1, {absl::Seconds(30), 256});
    else
      client_ = std::make_unique<LocalClient>(host_, 0, 1);
    const absl::Status created = client_.tables->CreateTables(Specs(), absl::Seconds(30));
    EXPECT_TRUE(created.ok()) << created;
  }

  absl::Status Assign(const std::vector<uint64_t>& ids, const std::vector<float>& values,
                      uint32_t table = kDense) {
    return client_.tables->Assign(
        {table, ids, ids.empty() ? kDim : values.size() / ids.size(), values.data()}, Deadline());
  }
  std::vector<float> Read(const std::vector<uint64_t>& ids, size_t width) {
    std::vector<float> values(ids.size() * width, -1);
    const absl::Status read = client_.tables->Read({kDense, ids, width, values.data()}, Deadline());
    EXPECT_TRUE(read.ok()) << read;
    return values;
  }
  absl::Status ReadStatus(const std::vector<uint64_t>& ids, size_t width = kDim,
                          uint32_t table = kDense) {
    std::vector<float> values(ids.size() * width);
    return client_.tables->Read({table, ids, width, values.data()}, Deadline());
  }
  void Step(uint64_t step) {
    const std::vector<float> gradients = MakeValues(step, kRows * kDim);
    ASSERT_TRUE(
        client_.rows->Push(step, 0, {{kDense, ids_, gradients.data()}}).Wait(Deadline()).ok());
    const auto committed = client_.rows->Commit(Args(step)).Wait(Deadline());
    ASSERT_TRUE(committed.ok()) << committed.status();
  }
  void ExpectRefused(const absl::Status& status, absl::StatusCode code, const std::string& why) {
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_NE(status.message().find(why), absl::string_view::npos) << status;
  }

  PsCluster cluster_;
  TableHost host_{3};
  ClientStack client_;
  const std::vector<uint64_t> ids_ = Chunks(kRows);
  const std::vector<float> weights_ = MakeValues(9, kRows*kDim),
                           whole_ = MakeValues(8, kRows*kWidth);
};

TEST_P(DenseTableTest, AssignedWeightsArePulledAndTheirSlotsBeginAnew) {
  ASSERT_TRUE(Assign(ids_, weights_).ok());
  std::vector<float> pulled(kRows * kDim);
  ASSERT_TRUE(client_.rows->Pull(1, false, {{kDense, ids_, pulled.data()}}).Wait(Deadline()).ok());
  EXPECT_EQ(pulled, weights_);
  EXPECT_EQ(Read(ids_, kDim), weights_);
  const std::vector<float> whole = Read(ids_, kWidth);
  for (size_t i = 0; i < whole.size(); ++i) {
    EXPECT_EQ(whole[i], i % kWidth < kDim ? weights_[i / kWidth * kDim + i % kWidth] : 0) << i;
  }
}

TEST_P(DenseTableTest, ReadAndAssignedElsewhereTheRowsTrainOnWithTheSameBits) {
  ASSERT_TRUE(Assign(ids_, weights_).ok());
  for (uint64_t step : {1, 2, 3}) Step(step);
  const std::vector<float> kept = Read(ids_, kWidth);
  for (uint64_t step : {4, 5}) Step(step);
  const std::vector<float> unbroken = Read(ids_, kWidth);
  TableHost host(1);
  client_ = std::make_unique<LocalClient>(host, 0, 1);
  ASSERT_TRUE(client_.tables->CreateTables(Specs(), absl::Seconds(30)).ok());
  ASSERT_TRUE(client_.tables->Load(3, "/nowhere", {}, Deadline()).Wait(Deadline()).ok());
  ASSERT_TRUE(Assign(ids_, kept).ok());
  for (uint64_t step : {4, 5}) Step(step);
  EXPECT_EQ(Read(ids_, kWidth), unbroken);
}

TEST_P(DenseTableTest, AssignmentMayBeRepeatedButNotChanged) {
  ASSERT_TRUE(Assign(ids_, whole_).ok());
  EXPECT_TRUE(Assign(ids_, whole_).ok());
  std::vector<uint64_t> more = {kRows + 1,
                                7};  // on whatever server: a new row beside one that is there
  std::vector<float> values = MakeValues(1, 2 * kWidth);
  ExpectRefused(Assign({7}, MakeValues(1, kWidth)), absl::StatusCode::kFailedPrecondition,
                "row 7 has other values already");
  if (GetParam() <= 1) {
    ExpectRefused(Assign(more, values), absl::StatusCode::kFailedPrecondition, "row 7");
    ExpectRefused(ReadStatus({kRows + 1}), absl::StatusCode::kFailedPrecondition, "never assigned");
  }
  EXPECT_EQ(Read(ids_, kWidth), whole_);
}

TEST_P(DenseTableTest, NothingIsAssignedOnceAStepHasBegun) {
  ASSERT_TRUE(Assign(ids_, weights_).ok());
  Step(1);
  ExpectRefused(Assign({kRows + 1}, MakeValues(1, kDim)), absl::StatusCode::kFailedPrecondition,
                "training has begun, 1 steps");
  ExpectRefused(ReadStatus({kRows + 1}), absl::StatusCode::kFailedPrecondition,
                "row 41 was never assigned");
}

TEST_P(DenseTableTest, BadInputIsRefused) {
  ExpectRefused(Assign({0}, MakeValues(1, kDim)), absl::StatusCode::kInvalidArgument, "id");
  ExpectRefused(Assign({3, 3}, MakeValues(1, 2 * kDim)), absl::StatusCode::kInvalidArgument, "3");
  ExpectRefused(Assign({3}, MakeValues(1, kDim + 1)), absl::StatusCode::kInvalidArgument,
                "rows of 7 numbers, must have 6, or with all slots 18");
  ExpectRefused(Assign({3}, MakeValues(1, 4), 1), absl::StatusCode::kInvalidArgument,
                "is not dense");
  ExpectRefused(Assign({3}, MakeValues(1, kDim), 3), absl::StatusCode::kInvalidArgument,
                "no table 3");
  ExpectRefused(ReadStatus({3}, 2 * kDim), absl::StatusCode::kInvalidArgument,
                "rows of 12 numbers");
  ExpectRefused(ReadStatus({3}, 4, 1), absl::StatusCode::kInvalidArgument, "is not dense");
  ExpectRefused(ReadStatus({3}), absl::StatusCode::kFailedPrecondition, "row 3 was never assigned");
  EXPECT_TRUE(Assign({}, {}).ok());
  EXPECT_TRUE(Assign(ids_, weights_).ok()) << "nothing of the above stayed";
}

TEST_P(DenseTableTest, HashAndSaveLeaveThemOut) {
  ASSERT_TRUE(Assign(ids_, weights_).ok());
  const std::vector<uint64_t> row = {5};
  const std::vector<float> gradient = MakeValues(3, 4);
  ASSERT_TRUE(client_.rows->Push(1, 0, {{1, row, gradient.data()}}).Wait(Deadline()).ok());
  Step(1);
  const auto hash = client_.tables->Hash().Wait(Deadline());
  ASSERT_TRUE(hash.ok()) << hash.status();
  EXPECT_EQ(hash->num_rows, 1u);
  const support::TempFolder folder;
  const auto files = client_.tables->Save(1, folder.path(), Deadline()).Wait(Deadline());
  ASSERT_TRUE(files.ok()) << files.status();
  for (const SavedFile& file : *files)
    EXPECT_EQ(file.name().find("table2"), std::string::npos) << file.name();
}

// Pushes a gradient that bf16 cannot hold again and again. The rounding error of one push travels
// with the next.
TEST(DenseTableWireTest, ErrorsOfRoundingDoNotAddUp) {
  PsCluster cluster(2, 2);
  RemoteClientOptions options{absl::Seconds(30), 256};
  options.wire = WIRE_BF16;
  const auto client = cluster.MakeClient(0, 1, options);
  TableSpec spec = MakeTableSpec(1, kDim, SPARSE_SGD);
  spec.set_dense(true);
  ASSERT_TRUE(client->CreateTables({spec}, absl::Seconds(30)).ok());
  const std::vector<uint64_t> ids = Chunks(kRows);
  const std::vector<float> gradients(kRows * kDim, 1 + 0x1p-10f);
  std::vector<float> values(kRows * kDim);
  ASSERT_TRUE(client->Assign({1, ids, kDim, values.data()}, Deadline()).ok());
  constexpr uint64_t kSteps = 64;
  for (uint64_t step = 1; step <= kSteps; ++step) {
    ASSERT_TRUE(client->Push(step, 0, {{1, ids, gradients.data()}}).Wait(Deadline()).ok());
    ASSERT_TRUE(client->Commit({step, {{1, 1}}, 1, false}).Wait(Deadline()).ok());
  }
  ASSERT_TRUE(client->Read({1, ids, kDim, values.data()}, Deadline()).ok());
  // Rounded one by one the gradients would be 1 and their sum 64.
  for (const float value : values) ASSERT_NEAR(value, -(kSteps + kSteps * 0x1p-10), 0x1p-8);
}

INSTANTIATE_TEST_SUITE_P(Servers, DenseTableTest, testing::Values(0, 1, 2, 3),
                         [](const auto& info) {
                           return info.param == 0 ? std::string("Local")
                                                  : std::to_string(info.param);
                         });

TEST(DenseTableSpecTest, StorageOtherThanF32IsRefused) {
  TableHost host(1);
  LocalClient client(host, 0, 1);
  std::vector<TableSpec> specs = Specs();
  specs[1].set_storage(STORED_BF16);
  const absl::Status created = client.CreateTables(specs, absl::Seconds(30));
  EXPECT_TRUE(absl::IsInvalidArgument(created)) << created;
}

}  // namespace
}  // namespace tandem::ps
