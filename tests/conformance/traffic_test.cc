// Groups count the bytes that their operations move.
#include "rpc/traffic.h"

#include "tests/conformance/group_harness.h"
#include "trainer/comm/queued_group.h"

namespace tandem::comm {
namespace {

class TrafficTest : public testing::TestWithParam<std::tuple<Kind, int>> {};

// A ring moves 2 (n - 1) / n of the array each way (Patarasuk and Yuan 2009); so do the others
// here.
TEST_P(TrafficTest, AnAllReduceMovesTheBytesOfTheFormula) {
  const auto [kind, size] = GetParam();
  RunRanks(kind, size, [](ProcessGroup& group) {
    auto& counted = dynamic_cast<QueuedGroup&>(group);
    constexpr int64_t kCount = 300'000;
    const auto buffer = group.Allocate(kCount * sizeof(float));
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    std::vector<float> own(kCount, 1);
    auto* const shared = static_cast<float*>((*buffer)->data());
    std::fill_n(shared, kCount, 1.0f);
    for (float* values : {own.data(), shared}) {
      for (const SumOrder order : kSumOrders) {
        const rpc::Traffic before = counted.traffic();
        const Work work = group.AllReduce(DenseView(values, {kCount}), {.order = order});
        ASSERT_TRUE(work.Wait(Soon()).ok());
        ASSERT_TRUE(group.Barrier({}).Wait(Soon()).ok());
        const rpc::Traffic moved = counted.traffic() - before;
        const double formula = 2.0 * (group.size() - 1) / group.size() * kCount * sizeof(float);
        EXPECT_NEAR(static_cast<double>(moved.sent), formula, 0.02 * formula);
        EXPECT_NEAR(static_cast<double>(moved.received), formula, 0.02 * formula);
      }
    }
  });
}

TEST_P(TrafficTest, MessagesAndGathersCountTheirBytes) {
  const auto [kind, size] = GetParam();
  RunRanks(kind, size, [](ProcessGroup& group) {
    auto& counted = dynamic_cast<QueuedGroup&>(group);
    constexpr int64_t kCount = 50'000;
    const int n = group.size();
    std::vector<float> own(kCount, 1), all(static_cast<size_t>(n * kCount));
    const auto expect = [&](const rpc::Traffic& before, double formula) {
      const rpc::Traffic moved = counted.traffic() - before;
      EXPECT_NEAR(static_cast<double>(moved.sent), formula, 0.02 * formula);
      EXPECT_NEAR(static_cast<double>(moved.received), formula, 0.02 * formula);
    };
    const ArrayView mine = DenseView(own.data(), {kCount}),
                    whole = DenseView(all.data(), {n * kCount});
    rpc::Traffic before = counted.traffic();
    ASSERT_TRUE(group.AllGather(whole, mine, {}).Wait(Soon()).ok());
    expect(before, (n - 1.0) * kCount * sizeof(float));
    before = counted.traffic();
    ASSERT_TRUE(group
                    .SendRecv(mine, (group.rank() + 1) % n, DenseView(all.data(), {kCount}),
                              (group.rank() + n - 1) % n, {})
                    .Wait(Soon())
                    .ok());
    expect(before, 1.0 * kCount * sizeof(float));
  });
}

INSTANTIATE_TEST_SUITE_P(Groups, TrafficTest,
                         testing::Combine(testing::Values(Kind::SHARED_MEMORY, Kind::TCP),
                                          testing::Values(2, 3, 4)),
                         [](const auto& info) {
                           return absl::StrCat(NameOf(std::get<0>(info.param)),
                                               std::get<1>(info.param));
                         });

}  // namespace
}  // namespace tandem::comm
