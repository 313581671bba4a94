// The gradients' memory is the caller's again once their push is acknowledged, with every client.
#include <memory>
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
};

class AcknowledgedPushTest : public testing::TestWithParam<Case> {
 protected:
  AcknowledgedPushTest() {
    const Case& param = GetParam();
    if (param.servers > 0) {
      cluster_ = std::make_unique<PsCluster>(param.servers, 2);
      client_ = cluster_->MakeClient(
          0, 1,
          {.timeout = absl::Seconds(30), .wire = param.wire, .shared_memory = param.shared_memory});
    } else {
      client_ = std::make_unique<LocalClient>(host_, 0, 1);
    }
  }

  TableHost host_{2};
  std::unique_ptr<PsCluster> cluster_;
  ClientStack client_;
  const std::vector<uint64_t> ids_ = [] {
    std::vector<uint64_t> ids(kRows);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = 3 * i + 1;
    return ids;
  }();
};

// The push is acknowledged before the commit.
TEST_P(AcknowledgedPushTest, GradientsMayBeOverwritten) {
  TableSpec spec = MakeTableSpec(1, kDim);  // SGD
  spec.set_init_stddev(0);
  ASSERT_TRUE(client_.tables->CreateTables({spec}, absl::Seconds(30)).ok());
  std::vector<float> rows(kRows * kDim);
  float expected = 0;
  for (uint64_t step = 1; step <= 3; ++step) {
    SCOPED_TRACE(testing::Message() << "step " << step);
    std::vector<float> gradients(kRows * kDim, 1);
    ASSERT_TRUE(client_.rows->Push(step, 0, {{1, ids_, gradients.data()}}).Wait(Deadline()).ok());
    std::fill(gradients.begin(), gradients.end(), 5.0f);
    ASSERT_TRUE(client_.rows->Commit({step, {{1, 1}}, 1, false}).Wait(Deadline()).ok());
    ASSERT_TRUE(client_.rows->Pull(step + 1, true, {{1, ids_, rows.data()}}).Wait(Deadline()).ok());
    expected -= 1;
    for (const float value : rows) ASSERT_EQ(value, expected);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Clients, AcknowledgedPushTest,
    testing::Values(
        Case{.name = "Local"}, Case{.name = "Grpc", .servers = 1},
        Case{.name = "GrpcOfTwo", .servers = 2},
        Case{.name = "Shared", .servers = 1, .shared_memory = true},
        Case{.name = "SharedOfTwo", .servers = 2, .shared_memory = true},
        Case{.name = "SharedBf16", .servers = 1, .shared_memory = true, .wire = WIRE_BF16}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tandem::ps
