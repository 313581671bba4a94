// Bags that the servers pool, compared with rows pulled and pooled here.
#include <map>

#include "gtest/gtest.h"
#include "kernels/base/crc32c.h"
#include "ps/client/clients.h"
#include "ps/local/local_client.h"
#include "ps/wire/bag_rows.h"
#include "ps/wire/pooled_cut.h"
#include "rpc/protocol_version.h"
#include "tests/ps/cluster.h"
#include "tests/ps/spec.h"
#include "tests/support/fault_proxy.h"

namespace tandem::ps {
namespace {

constexpr size_t kDim = 5;

absl::Time Deadline() { return absl::Now() + absl::Seconds(20); }

// 60 bags of 0 to 12 ids out of 40, so that ids repeat within a bag and across bags.
struct SomeBags {
  explicit SomeBags(uint64_t seed, bool weighted) {
    for (uint64_t bag = 0; bag < 60; ++bag) {
      for (uint64_t i = 0; i < Fmix64(seed * 64 + bag) % 13; ++i)
        ids.push_back(1 + Fmix64(seed * 4096 + bag * 64 + i) % 40);
      offsets.push_back(ids.size());
    }
    if (weighted) weights = MakeValues(seed, ids.size());
  }
  Bags With(Pooling pooling) const {
    return {1, pooling, ids, offsets, weights.empty() ? nullptr : weights.data()};
  }

  std::vector<uint64_t> ids, offsets{0};
  std::vector<float> weights;
};

struct PooledCase {
  Pooling pooling;
  bool weighted;
};

class PooledTest : public testing::TestWithParam<PooledCase> {};

INSTANTIATE_TEST_SUITE_P(Poolings, PooledTest,
                         testing::Values(PooledCase{Pooling::SUM, false},
                                         PooledCase{Pooling::SUM, true},
                                         PooledCase{Pooling::MEAN, false},
                                         PooledCase{Pooling::SQRT_N, true}));

// Runs two steps that pull `pooled` rows, push gradients made of them and commit. Returns the rows.
std::vector<float> Train(const Clients& client, const PooledCase& c, std::vector<float>* pooled) {
  EXPECT_TRUE(
      client.tables->CreateTables({MakeTableSpec(1, kDim, SPARSE_ADAGRAD)}, absl::Seconds(20))
          .ok());
  for (uint64_t step = 1; step <= 2; ++step) {
    const SomeBags bags(step, c.weighted);
    std::vector<float> rows(60 * kDim, 7);  // old contents must not matter
    const auto pulled =
        client.pooled->PullPooled(step, true, bags.With(c.pooling), kDim, rows.data())
            .Wait(Deadline());
    EXPECT_TRUE(pulled.ok()) << pulled.status();
    pooled->insert(pooled->end(), rows.begin(), rows.end());
    for (float& value : rows) value += 0.5f;
    const auto pushed = client.pooled->PushPooled(step, 0, bags.With(c.pooling), kDim, rows.data())
                            .Wait(Deadline());
    EXPECT_TRUE(pushed.ok()) << pushed.status();
    EXPECT_TRUE(client.rows->Commit({.step = step, .rates = {{1, 0.1f}}, .gradient_scale = 1})
                    .Wait(Deadline())
                    .ok());
  }
  std::vector<uint64_t> ids;
  for (uint64_t id = 1; id <= 40; ++id) ids.push_back(id);
  std::vector<float> rows(ids.size() * kDim);
  EXPECT_TRUE(client.rows->Pull(0, false, {{1, ids, rows.data()}}).Wait(Deadline()).ok());
  return rows;
}

TEST_P(PooledTest, OneServersBitsAreThoseOfRowsPooledHereWithAnyNumberOfThreads) {
  TableHost host(2);
  LocalClient local(host, 0, 1);
  std::vector<float> pooled_here;
  const std::vector<float> rows_here = Train(ClientsOf(local), GetParam(), &pooled_here);
  for (const int threads : {1, 2, 3}) {
    PsCluster cluster(1, threads);
    const auto remote = cluster.MakeClient(0, 1, {});
    std::vector<float> pooled_there;
    EXPECT_EQ(rows_here, Train(ClientsOf(*remote), GetParam(), &pooled_there)) << threads;
    EXPECT_EQ(pooled_here, pooled_there) << threads;
  }
}

TEST_P(PooledTest, SeveralServersAndSmallMessagesGiveTheSameToRounding) {
  TableHost host(1);
  LocalClient local(host, 0, 1);
  PsCluster cluster(3, 2);
  const auto remote = cluster.MakeClient(0, 1, {.message_bytes = 200});
  std::vector<float> pooled_here, pooled_there;
  const std::vector<float> rows_here = Train(ClientsOf(local), GetParam(), &pooled_here),
                           rows_there = Train(ClientsOf(*remote), GetParam(), &pooled_there);
  for (size_t i = 0; i < pooled_here.size(); ++i)
    ASSERT_NEAR(pooled_here[i], pooled_there[i], 1e-5) << i;
  for (size_t i = 0; i < rows_here.size(); ++i) ASSERT_NEAR(rows_here[i], rows_there[i], 1e-5) << i;
}

TEST(PooledPushTest, CountsOnceOnABadNetwork) {
  // Zero rows, integer gradients and SGD of rate 1 show one push too few or too many.
  PsCluster cluster(2, 2);
  std::vector<std::unique_ptr<support::FaultProxy>> proxies;
  std::vector<std::string> addresses;
  for (size_t i = 0; i < 2; ++i) {
    proxies.push_back(std::make_unique<support::FaultProxy>(cluster[i].address(),
                                                            support::FaultPlan{.seed = 5 + i,
                                                                               .drop_request = 100,
                                                                               .drop_reply = 150,
                                                                               .duplicate = 200,
                                                                               .replay = 100}));
    addresses.push_back(proxies.back()->address());
  }
  const auto client =
      cluster.MakeClient(0, 1, {.timeout = absl::Seconds(20), .message_bytes = 300}, addresses);
  TableSpec spec = MakeTableSpec(1, kDim);
  spec.set_init_stddev(0);
  ASSERT_TRUE(client->CreateTables({spec}, absl::Seconds(20)).ok());
  std::map<uint64_t, int> expected;
  for (uint64_t step = 1; step <= 4; ++step) {
    const SomeBags bags(step, false);
    std::vector<float> gradients(60 * kDim);
    for (size_t bag = 0; bag < 60; ++bag) {
      const int value = static_cast<int>(Fmix64(step * 97 + bag) % 5) - 2;
      std::fill_n(gradients.begin() + bag * kDim, kDim, static_cast<float>(value));
      for (uint64_t i = bags.offsets[bag]; i < bags.offsets[bag + 1]; ++i)
        expected[bags.ids[i]] -= value;
    }
    const auto pushed = client->PushPooled(step, 0, bags.With(Pooling::SUM), kDim, gradients.data())
                            .Wait(Deadline());
    ASSERT_TRUE(pushed.ok()) << pushed.status();
    const auto committed =
        client->Commit({.step = step, .rates = {{1, 1.0f}}, .gradient_scale = 1}).Wait(Deadline());
    ASSERT_TRUE(committed.ok()) << committed.status();
  }
  uint64_t suffered = 0;
  for (const auto& proxy : proxies) {
    EXPECT_TRUE(proxy->ReplayKept());
    const support::FaultCounts counts = proxy->counts("PushPooled");
    suffered +=
        counts.dropped_requests + counts.dropped_replies + counts.duplicated + counts.replayed;
  }
  EXPECT_GT(suffered, 20u);
  for (const auto& [id, weight] : expected) {
    std::vector<float> row(kDim);
    ASSERT_TRUE(client->Pull(0, false, {{1, {&id, 1}, row.data()}}).Wait(Deadline()).ok());
    for (const float value : row) ASSERT_EQ(value, static_cast<float>(weight)) << "id " << id;
  }
}

TEST(PooledCutTest, PartsOfABagAddUpInOrderWhateverTheLimit) {
  const SomeBags bags(3, true);
  const Router router = Router::RoundRobin(2);
  for (const size_t limit : {size_t{1}, size_t{100}, size_t{1} << 20}) {
    const auto messages = CutBags(bags.With(Pooling::SUM), router, kDim, limit);
    ASSERT_TRUE(messages.ok());
    std::map<int, std::vector<std::vector<uint64_t>>> of_bags;
    for (const PooledMessage& message : *messages) {
      auto& servers_bags = of_bags[message.server];
      servers_bags.resize(60);
      size_t i = 0;
      for (size_t b = 0; b < message.bags.size(); ++b) {
        for (const size_t end = i + message.counts[b]; i < end; ++i) {
          EXPECT_EQ(router.OwnerOf(1, message.ids[i]), message.server);
          servers_bags[message.bags[b]].push_back(message.ids[i]);
        }
      }
      EXPECT_EQ(i, message.ids.size());
      EXPECT_EQ(i, message.weights.size());
    }
    for (const auto& [server, servers_bags] : of_bags) {
      for (size_t bag = 0; bag < 60; ++bag) {
        std::vector<uint64_t> owned;
        for (uint64_t i = bags.offsets[bag]; i < bags.offsets[bag + 1]; ++i) {
          if (router.OwnerOf(1, bags.ids[i]) == server) owned.push_back(bags.ids[i]);
        }
        EXPECT_EQ(servers_bags[bag], owned);
      }
    }
  }
}

TEST(PooledBadInputTest, IsRefusedAndChangesNothing) {
  PsCluster cluster(1, 1);
  const auto client = cluster.MakeClient(0, 1, {});
  ASSERT_TRUE(client->CreateTables({MakeTableSpec(1, kDim)}, absl::Seconds(20)).ok());
  std::vector<float> values(4 * kDim, 1);
  const std::vector<uint64_t> ids{5, 6}, padding{5, 0}, two{0, 2}, falling{0, 3, 2}, none;
  const auto refused = [&](const Bags& bags) {
    EXPECT_EQ(
        client->PullPooled(1, true, bags, kDim, values.data()).Wait(Deadline()).status().code(),
        absl::StatusCode::kInvalidArgument);
  };
  refused({1, Pooling::SUM, padding, two});
  refused({1, Pooling::SUM, ids, falling});
  refused({1, Pooling::SUM, ids, none});
  refused({2, Pooling::SUM, ids, two});
  // Sends inconsistent messages to the server itself.
  EmbeddingService service(cluster[0].host(), kTestJobEpoch, 1, 1);
  const auto answer = [&](const PushPooledRequest& request) {
    absl::Status status;
    service.PushPooled(rpc::Payload(request.SerializeAsString()),
                       [&](const absl::StatusOr<rpc::Payload>& reply) { status = reply.status(); });
    return status;
  };
  PushPooledRequest request;
  request.mutable_header()->set_protocol_version(rpc::kProtocolVersion);
  request.mutable_header()->set_job_epoch(kTestJobEpoch);
  request.mutable_header()->set_generation(1);
  request.mutable_header()->set_shard_map_version(1);
  request.mutable_header()->mutable_sender()->set_role(TRAINER);
  request.mutable_header()->mutable_sender()->set_incarnation(1);
  request.set_sequence(1);
  request.set_step(1);
  BagSegment* segment = request.add_segments();
  segment->set_table(1);
  request.set_payload_crc32c(1);
  EXPECT_NE(std::string(answer(request).message()).find("checksum"), std::string::npos);
  std::string id(8, '\1');
  const std::string count{"\1\0\0\0", 4}, gradient(kDim * sizeof(float), '\0');
  const auto with = [&](uint64_t num_ids, uint64_t num_bags, const std::string& counts,
                        const std::string& gradients) {
    segment->set_ids(num_ids);
    segment->set_bags(num_bags);
    request.set_counts(counts);
    request.set_ids(id);
    request.set_gradients(gradients);
    uint32_t crc = 0;
    for (const std::string& bytes :
         {request.counts(), request.weights(), request.ids(), request.gradients()}) {
      crc = Crc32c(crc, bytes.data(), bytes.size());
    }
    request.set_payload_crc32c(crc);
    return answer(request).code();
  };
  constexpr auto kBad = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(with(uint64_t{1} << 61, 1, count, gradient), kBad);
  EXPECT_EQ(with(1, uint64_t{1} << 62, count, gradient), kBad);
  EXPECT_EQ(with(1, 1, std::string(4, '\x7f'), gradient), kBad);
  EXPECT_EQ(with(1, 1, count, gradient.substr(4)), kBad);
  EXPECT_EQ(with(0, 1, std::string(4, '\0'), gradient), kBad);  // an id is left over
  id = std::string(8, '\0');
  EXPECT_EQ(with(1, 1, count, gradient), kBad);
  ASSERT_TRUE(
      client->Commit({.step = 1, .rates = {{1, 1.0f}}, .gradient_scale = 1}).Wait(Deadline()).ok());
  EXPECT_EQ(client->Hash().Wait(Deadline())->num_rows, 0u);
}

}  // namespace
}  // namespace tandem::ps
