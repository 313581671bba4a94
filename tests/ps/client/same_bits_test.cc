// The promise of ps/client/row_client.h: LocalClient and RemoteClient pull the same bits, give the
// same norms and end with the same hash.
// It holds for any number of workers and servers, however messages are cut.
#include "gtest/gtest.h"
#include "ps/local/local_client.h"
#include "tests/ps/cluster.h"
#include "tests/ps/training.h"

namespace tandem::ps {
namespace {

std::vector<Trace> TrainLocal(int num_workers, bool nudged = false) {
  TableHost host(num_workers);
  return TrainAll(
      [&](uint32_t trainer) { return std::make_unique<LocalClient>(host, trainer, kTrainers); },
      {1, 6, nudged});
}

class SameBitsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { reference_ = new std::vector<Trace>(TrainLocal(1)); }
  static void TearDownTestSuite() { delete reference_; }
  static std::vector<Trace>* reference_;
};
std::vector<Trace>* SameBitsTest::reference_ = nullptr;

TEST_F(SameBitsTest, ReferenceLearnedSomething) {
  EXPECT_GT((*reference_)[0].hash.num_rows, 300u);
  EXPECT_EQ((*reference_)[0].hash.hash, (*reference_)[1].hash.hash);
  EXPECT_NE((*reference_)[0].norms[0], (*reference_)[0].norms[1]);
}

TEST_F(SameBitsTest, LocalWithAnyNumberOfWorkers) {
  for (int workers : {1, 2, 4}) ExpectSame(TrainLocal(workers), *reference_);
}

TEST_F(SameBitsTest, RemoteWithAnyNumberOfServersAndAnyCut) {
  for (int servers : {1, 2, 4}) {
    for (size_t message_bytes : {size_t{1}, size_t{700}, size_t{1} << 20}) {
      PsCluster cluster(servers, servers == 2 ? 2 : 1);
      SCOPED_TRACE(testing::Message()
                   << servers << " servers, messages of " << message_bytes << " bytes");
      ExpectSame(
          TrainAll(
              [&](uint32_t trainer) {
                return cluster.MakeClient(trainer, kTrainers, {absl::Seconds(30), message_bytes});
              },
              {1, 6}),
          *reference_);
    }
  }
}

// Rounding depends on the row, the step and the slice, not on the way that a row takes.
TEST_F(SameBitsTest, RoundedOnTheWireTheSameWithAnyNumberOfServersAndAnyCut) {
  for (WireFormat wire : {WIRE_BF16, WIRE_F16, WIRE_INT8}) {
    const auto train = [&](int servers, int workers, size_t message_bytes) {
      PsCluster cluster(servers, workers);
      return TrainAll(
          [&](uint32_t trainer) {
            return cluster.MakeClient(
                trainer, kTrainers,
                {.timeout = absl::Seconds(30), .message_bytes = message_bytes, .wire = wire});
          },
          {1, 6});
    };
    const auto one = train(1, 1, size_t{1} << 20);
    ExpectSame(train(2, 2, 700), one);
    ExpectSame(train(4, 1, 1), one);
    EXPECT_NE(one[0].hash.hash, (*reference_)[0].hash.hash);
  }
}

TEST_F(SameBitsTest, HashSeesOneBitOfOneGradient) {
  const auto nudged = TrainLocal(2, /*nudged=*/true);
  EXPECT_NE(nudged[0].hash.hash, (*reference_)[0].hash.hash);
  EXPECT_EQ(nudged[0].hash.num_rows, (*reference_)[0].hash.num_rows);
}

}  // namespace
}  // namespace tandem::ps
