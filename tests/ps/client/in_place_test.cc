// Rows used where they arrived and gradients sent from where they were made: the bits of copies, for as long as somebody has them; and
// what nobody promised to leave alone is copied.
#include <fstream>
#include <sstream>
#include <string>

#include "gtest/gtest.h"
#include "ps/local/local_client.h"
#include "tests/ps/cluster.h"
#include "tests/ps/training.h"

namespace tandem::ps {
namespace {

constexpr uint32_t kDim = 16;
constexpr size_t kRows = 40000;  // 2.5 MB: several messages over gRPC

struct Case {
  std::string name;
  int servers = 0;  // 0: the tables are in this process
  bool shared_memory = false;
  WireFormat wire = WIRE_F32;
  // Whether rows that were pulled lie in a server's memory, and whether gradients with an owner are read as late as by the commit.
  bool rows_stay = false, gradients_stay = false;
};

CommitArgs Args(uint64_t step) { return {step, {{1, 1.0f}}, 1, false}; }

// Whether it lies in a segment of shared memory that has no name.
bool IsShared(const void* data) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    char dash;
    std::istringstream(line) >> std::hex >> begin >> dash >> end;
    if (address >= begin && address < end) return line.find("memfd:") != std::string::npos;
  }
  return false;
}

class InPlaceTest : public testing::TestWithParam<Case> {
 protected:
  InPlaceTest() {
    const Case& param = GetParam();
    if (param.servers > 0) {
      cluster_ = std::make_unique<PsCluster>(param.servers, 2);
      client_ = cluster_->MakeClient(0, 1, {.timeout = absl::Seconds(30), .wire = param.wire, .shared_memory = param.shared_memory});
    } else {
      client_ = std::make_unique<LocalClient>(host_, 0, 1);
    }
    copying_ = std::make_unique<LocalClient>(other_host_, 0, 1);
    for (Client* client : {client_.get(), copying_.get()}) {
      const absl::Status created = client->CreateTables({MakeTableSpec(1, kDim, SPARSE_ADAGRAD)}, absl::Seconds(30));
      EXPECT_TRUE(created.ok()) << created;
    }
    // The first message opens the stream.
    EXPECT_TRUE(client_->Pull(0, false, {{1, absl::MakeConstSpan(ids_).subspan(0, 1), copied_.data()}}).Wait(Deadline()).ok());
  }

  ArrivedRows PullRows(uint64_t step) {
    const auto rows = client_->PullRows(step, /*create=*/true, 1, ids_, kDim).Wait(Deadline());
    EXPECT_TRUE(rows.ok()) << rows.status();
    return rows.ok() ? *rows : nullptr;
  }
  std::vector<float> CopyOf(const ArrivedRows& rows) { return {rows.get(), rows.get() + kRows * kDim}; }
  // Gradients, all of them `value`, in memory of the client's.
  std::shared_ptr<float> Gradients(float value) {
    const auto memory = client_->AllocateGradients(kRows * kDim * sizeof(float));
    std::shared_ptr<float> gradients(memory, static_cast<float*>(memory->data()));
    std::fill_n(gradients.get(), kRows * kDim, value);
    return gradients;
  }
  void Push(uint64_t step, const float* gradients, std::shared_ptr<const void> owner) {
    const absl::Status pushed = client_->Accumulate(step, 0, {{1, ids_, gradients, std::move(owner)}}).Wait(Deadline()).status();
    ASSERT_TRUE(pushed.ok()) << pushed;
  }
  void Commit(uint64_t step) {
    const absl::Status committed = client_->Commit(Args(step)).Wait(Deadline()).status();
    ASSERT_TRUE(committed.ok()) << committed;
  }

  TableHost host_{2}, other_host_{1};
  std::unique_ptr<PsCluster> cluster_;
  std::unique_ptr<Client> client_, copying_;
  const std::vector<uint64_t> ids_ = [] {
    std::vector<uint64_t> ids(kRows);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = 3 * i + 1;
    return ids;
  }();
  std::vector<float> copied_ = std::vector<float>(kRows * kDim);
};

TEST_P(InPlaceTest, TheBitsOfCopies) {
  for (uint64_t step = 1; step <= 3; ++step) {
    const std::vector<float> rows = CopyOf(PullRows(step));
    ASSERT_TRUE(client_->Pull(step, true, {{1, ids_, copied_.data()}}).Wait(Deadline()).ok());
    ASSERT_TRUE(rows == copied_) << "step " << step;
    const auto gradients = Gradients(0);
    for (size_t i = 0; i < rows.size(); ++i) copied_[i] = gradients.get()[i] = 0.5f * rows[i] + static_cast<float>(i % 7) - 3;
    Push(step, gradients.get(), gradients);
    ASSERT_TRUE(copying_->Accumulate(step, 0, {{1, ids_, copied_.data()}}).Wait(Deadline()).ok());
    Commit(step);
    ASSERT_TRUE(copying_->Commit(Args(step)).Wait(Deadline()).ok());
  }
  const bool same = client_->Hash().Wait(Deadline())->hash == copying_->Hash().Wait(Deadline())->hash;
  EXPECT_EQ(same, GetParam().wire == WIRE_F32) << "gradients that are rounded are others";
}

TEST_P(InPlaceTest, RowsStayWhatTheyWereWhateverComesAfter) {
  const ArrivedRows first = PullRows(1);
  EXPECT_EQ(IsShared(first.get()), GetParam().rows_stay);
  const std::vector<float> then = CopyOf(first);
  std::vector<ArrivedRows> held;  // more than a stream's memory holds, in the end
  for (int i = 0; i < 60; ++i) held.push_back(PullRows(1));
  Push(1, Gradients(1).get(), nullptr);
  Commit(1);
  ASSERT_TRUE(CopyOf(PullRows(2)) != then) << "the step changed every row";
  for (const ArrivedRows& rows : held) ASSERT_TRUE(CopyOf(rows) == then);
  client_.reset();
  cluster_.reset();
  EXPECT_TRUE(CopyOf(first) == then) << "client and server are gone";
}

// Who has promised nothing may do with his gradients what he likes once they are acknowledged, and the commit comes after that.
TEST_P(InPlaceTest, OnlyGradientsWithAnOwnerAreReadLater) {
  TableSpec spec = MakeTableSpec(2, kDim);  // SGD
  spec.set_init_stddev(0);
  ASSERT_TRUE(client_->CreateTables({spec}, absl::Seconds(30)).ok());
  float expected = 0;
  for (uint64_t step = 1; step <= 3; ++step) {
    SCOPED_TRACE(testing::Message() << "step " << step);
    const bool owned = step == 3;
    const auto gradients = Gradients(1);
    // The first push opens the stream.
    EXPECT_EQ(IsShared(gradients.get()), step > 1 && GetParam().servers == 1 && GetParam().gradients_stay);
    const auto pushed = client_->Accumulate(step, 0, {{2, ids_, gradients.get(), owned ? gradients : nullptr}});
    ASSERT_TRUE(pushed.Wait(Deadline()).ok());
    std::fill_n(gradients.get(), kRows * kDim, 5.0f);
    ASSERT_TRUE(client_->Commit({step, {{1, 1}, {2, 1}}, 1, false}).Wait(Deadline()).ok());
    ASSERT_TRUE(client_->Pull(step + 1, true, {{2, ids_, copied_.data()}}).Wait(Deadline()).ok());
    expected -= owned && GetParam().gradients_stay ? 5 : 1;
    for (const float value : copied_) ASSERT_EQ(value, expected);
  }
}

TEST_P(InPlaceTest, RefusalsAndEmptyCallsAreThoseOfAPull) {
  const std::vector<uint64_t> zero = {3, 0};
  for (const auto& bad : {client_->PullRows(1, true, 1, zero, kDim), client_->PullRows(1, true, 9, ids_, kDim)}) {
    EXPECT_TRUE(absl::IsInvalidArgument(bad.Wait(Deadline()).status())) << bad.Wait(Deadline()).status();
  }
  EXPECT_TRUE(client_->PullRows(1, true, 1, {}, kDim).Wait(Deadline()).ok());
  client_->Abort(absl::AbortedError("a peer is gone"));
  if (cluster_ != nullptr) {
    EXPECT_TRUE(absl::IsAborted(client_->PullRows(1, true, 1, ids_, kDim).Wait(Deadline()).status()));
  }
}

INSTANTIATE_TEST_SUITE_P(Clients, InPlaceTest,
                         testing::Values(Case{.name = "Local", .gradients_stay = true}, Case{.name = "Grpc", .servers = 1},
                                         Case{.name = "GrpcOfTwo", .servers = 2},
                                         Case{.name = "Shared", .servers = 1, .shared_memory = true, .rows_stay = true,
                                              .gradients_stay = true},
                                         Case{.name = "SharedOfTwo", .servers = 2, .shared_memory = true},
                                         Case{.name = "SharedBf16", .servers = 1, .shared_memory = true, .wire = WIRE_BF16}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tandem::ps
