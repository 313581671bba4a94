// Many threads on one service core without a network: trainers in every consistency mode,
// observers, and an end in the middle.
// Counts must be exact. The sanitizers (tests/README.md) find the other faults.
#include <atomic>
#include <functional>
#include <numeric>
#include <thread>

#include "gtest/gtest.h"
#include "kernels/base/crc32c.h"
#include "ps/local/local_client.h"
#include "ps/server/table_host.h"
#include "rpc/protocol_version.h"
#include "tests/ps/server/handler_call.h"
#include "tests/ps/spec.h"

namespace tandem::ps {
namespace {

constexpr uint64_t kJob = 0xfeed, kSteps = 25, kNumIds = 40;
constexpr uint32_t kTrainers = 3, kDim = 4;
constexpr float kRate = 0.5f;

std::vector<TableSpec> MakeTables() {
  TableSpec spec = MakeTableSpec(1, kDim);
  spec.set_init_stddev(0);
  return {spec};
}

RequestHeader Header(uint32_t trainer) {
  RequestHeader header;
  header.set_protocol_version(rpc::kProtocolVersion);
  header.set_job_epoch(kJob);
  header.set_generation(1);
  header.set_shard_map_version(1);
  header.mutable_sender()->set_role(TRAINER);
  header.mutable_sender()->set_rank(trainer);
  header.mutable_sender()->set_incarnation(1);
  header.set_trace_id(trainer + 1);
  return header;
}

template <class Request>
absl::StatusOr<std::string> Ask(EmbeddingService& service, HandlerCall::Method method,
                                const Request& request) {
  return HandlerCall(service, method, request.SerializeAsString()).Wait();
}

template <class Request>
Request MakeRequest(uint32_t trainer, uint64_t step) {
  Request request;
  *request.mutable_header() = Header(trainer);
  request.set_step(step);
  return request;
}

template <class Request>
Request MakeRequestForAllIds(uint32_t trainer, uint64_t step) {
  Request request = MakeRequest<Request>(trainer, step);
  std::vector<uint64_t> ids(kNumIds);
  std::iota(ids.begin(), ids.end(), 1);
  Segment& segment = *request.add_segments();
  segment.set_table(1);
  segment.set_count(kNumIds);
  request.set_ids(ids.data(), kNumIds * sizeof ids[0]);
  return request;
}

// Pulls, pushes a gradient of 1 for every number and commits. Odd steps send the push twice.
absl::Status TrainStep(EmbeddingService& service, uint32_t trainer, uint64_t step, bool norm) {
  PullRequest pull = MakeRequestForAllIds<PullRequest>(trainer, step);
  pull.set_create(step % 2 == 0);
  if (const auto pulled = Ask(service, &EmbeddingService::Pull, pull); !pulled.ok())
    return pulled.status();
  PushRequest push = MakeRequestForAllIds<PushRequest>(trainer, step);
  push.set_sequence(step);
  const std::vector<float> ones(kNumIds * kDim, 1.0f);
  push.set_gradients(ones.data(), ones.size() * sizeof ones[0]);
  const std::string payload = push.ids() + push.gradients();
  push.set_payload_crc32c(Crc32c(0, payload.data(), payload.size()));
  for (uint64_t time = 0; time <= step % 2; ++time) {
    if (const auto pushed = Ask(service, &EmbeddingService::Push, push); !pushed.ok())
      return pushed.status();
  }
  if (norm) {
    const auto request = MakeRequest<GradientNormRequest>(trainer, step);
    if (const auto answer = Ask(service, &EmbeddingService::GradientNorm, request); !answer.ok())
      return answer.status();
  }
  CommitRequest commit = MakeRequest<CommitRequest>(trainer, step);
  commit.set_gradient_scale(1);
  commit.add_rates()->set_table(1);
  commit.mutable_rates(0)->set_learning_rate(kRate);
  return Ask(service, &EmbeddingService::Commit, commit).status();
}

// Reads from the service until `done`, or until the service stops answering.
void Watch(EmbeddingService& service, const std::atomic<bool>& done) {
  const auto looked = [&](HandlerCall::Method method, const auto& request) {
    return HandlerCall(service, method, request.SerializeAsString()).Wait().ok();
  };
  StatisticsRequest statistics;
  HashRequest hash;
  TakeTraceRequest trace;
  CreateTablesRequest create;
  for (RequestHeader* header : {statistics.mutable_header(), hash.mutable_header(),
                                trace.mutable_header(), create.mutable_header()}) {
    *header = Header(0);
  }
  *create.add_tables() = MakeTableSpec(2, 3);
  create.set_num_trainers(kTrainers + 1);  // refused
  while (!done && looked(&EmbeddingService::Statistics, statistics) &&
         looked(&EmbeddingService::Hash, hash) && looked(&EmbeddingService::TakeTrace, trace)) {
    EXPECT_FALSE(looked(&EmbeddingService::CreateTables, create));
  }
}

// Runs `trainer(rank)` on a thread each, and `beside` on another thread until the trainers have
// ended.
void RunTrainers(const std::function<void(uint32_t)>& trainer,
                 const std::function<void(const std::atomic<bool>&)>& beside) {
  std::atomic<bool> done{false};
  std::thread other([&] { beside(done); });
  std::vector<std::thread> trainers;
  for (uint32_t rank = 0; rank < kTrainers; ++rank) trainers.emplace_back(trainer, rank);
  for (std::thread& thread : trainers) thread.join();
  done = true;
  other.join();
}

void ExpectEveryGradientCounted(TableHost& host) {
  LocalClient client(host, 0, kTrainers);
  std::vector<uint64_t> ids(kNumIds);
  std::iota(ids.begin(), ids.end(), 1);
  std::vector<float> rows(kNumIds * kDim);
  ASSERT_TRUE(client.Pull(0, false, {{.table = 1, .ids = ids, .rows = rows.data()}})
                  .Wait(absl::Now() + absl::Seconds(20))
                  .ok());
  for (float value : rows) ASSERT_EQ(value, -kRate * static_cast<float>(kTrainers * kSteps));
}

class ServiceThreadsTest : public testing::TestWithParam<ConsistencySpec> {};

TEST_P(ServiceThreadsTest, EveryGradientCountsOnceWhileOthersLook) {
  TableHost host(2);
  EmbeddingService service(host, kJob, 1, 1);
  LocalClient creator(host, 0, kTrainers, GetParam());
  ASSERT_TRUE(creator.CreateTables(MakeTables(), absl::Seconds(20)).ok());
  const bool norm = GetParam().mode() == ConsistencySpec::BSP;
  RunTrainers(
      [&](uint32_t trainer) {
        for (uint64_t step = 1; step <= kSteps; ++step) {
          const absl::Status status = TrainStep(service, trainer, step, norm);
          ASSERT_TRUE(status.ok()) << status;
        }
      },
      [&](const std::atomic<bool>& done) { Watch(service, done); });
  ExpectEveryGradientCounted(host);
}

TEST_P(ServiceThreadsTest, EveryCallEndsWhenTheHostFails) {
  TableHost host(2);
  EmbeddingService service(host, kJob, 1, 1);
  LocalClient creator(host, 0, kTrainers, GetParam());
  ASSERT_TRUE(creator.CreateTables(MakeTables(), absl::Seconds(20)).ok());
  std::atomic<uint64_t> steps{0};
  RunTrainers(
      [&](uint32_t trainer) {
        absl::Status status;
        for (uint64_t step = 1; status.ok(); ++step, ++steps)
          status = TrainStep(service, trainer, step, false);
        EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
      },
      [&](const std::atomic<bool>&) {
        while (steps < 5 * kTrainers) std::this_thread::yield();
        host.Fail(absl::AbortedError("the test ends it"));
      });
}

TEST_P(ServiceThreadsTest, LocalClientsShareAHost) {
  TableHost host(2);
  const auto deadline = [] { return absl::Now() + absl::Seconds(20); };
  RunTrainers(
      [&](uint32_t trainer) {
        LocalClient client(host, trainer, kTrainers, GetParam());
        ASSERT_TRUE(client.CreateTables(MakeTables(), absl::Seconds(20)).ok());
        std::vector<uint64_t> ids(kNumIds);
        std::iota(ids.begin(), ids.end(), 1);
        const std::vector<float> ones(kNumIds * kDim, 1.0f);
        std::vector<float> rows(ones.size());
        for (uint64_t step = 1; step <= kSteps; ++step) {
          ASSERT_TRUE(client.Pull(step, true, {{.table = 1, .ids = ids, .rows = rows.data()}})
                          .Wait(deadline())
                          .ok());
          ASSERT_TRUE(client.Push(step, trainer, {{1, ids, ones.data()}}).Wait(deadline()).ok());
          ASSERT_TRUE(client.Commit({.step = step, .rates = {{1, kRate}}}).Wait(deadline()).ok());
        }
      },
      [&](const std::atomic<bool>&) {});
  ExpectEveryGradientCounted(host);
}

ConsistencySpec MakeConsistency(ConsistencySpec::Mode mode, uint32_t staleness) {
  ConsistencySpec consistency;
  consistency.set_mode(mode);
  consistency.set_staleness(staleness);
  return consistency;
}

INSTANTIATE_TEST_SUITE_P(Modes, ServiceThreadsTest,
                         testing::Values(MakeConsistency(ConsistencySpec::BSP, 0),
                                         MakeConsistency(ConsistencySpec::SSP, 1),
                                         MakeConsistency(ConsistencySpec::ASP, 0),
                                         MakeConsistency(ConsistencySpec::PERMIT, 2)),
                         [](const auto& info) {
                           return ConsistencySpec::Mode_Name(info.param.mode());
                         });

}  // namespace
}  // namespace tandem::ps
