// Two replicas whose gradients meet in a group of their device, beside the same replicas on the CPU and beside one: through the memory
// of the host on any machine with a GPU (they share it), and over NCCL where each has a GPU of its own or all is emulated.
#include <gtest/gtest.h>

#include <thread>

#include "ps/client_local.h"
#include "ps/table_host.h"
#include "rpc/store/store.h"
#include "tests/support/temp_folder.h"
#include "trainer/cli/job_config.h"
#include "trainer/comm/thread_group.h"
#include "trainer/data/synthetic.h"
#include "trainer/loop/job_options.h"
#include "trainer/loop/sequence_data.h"
#include "trainer/loop/train_loop.h"

namespace tandem::loop {
namespace {

constexpr char kJob[] = R"(
data { path: "log" }
model { sequence_rec { max_length: 8 layers: 2 heads: 2 ffn_dim: 16 dropout: 0.2 init_stddev: 0.1 num_negatives: 8 } }
tables { name: "item" dim: 16 learning_rate: 1e-2 init_stddev: 0.1 }
optimizer { kind: ADAM learning_rate: 1e-2 max_grad_norm: 1 }
train { batch_size: 12 max_steps: 6 eval_every_steps: 6 }
)";

struct Result {
  std::vector<double> losses;
  decltype(RunSummary::params_hash) params_hash = {};
  std::map<std::string, double> metrics;
};

class CudaReplicasTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const CudaInfo info = QueryCuda();
    if (info.num_devices == 0) GTEST_SKIP() << info.why_none;
  }

  // Of replica 0; all replicas end alike or the run fails.
  Result Run(int size, std::vector<std::string> sets) {
    const auto job = ParseJob(kJob, "job", sets, {.num_trainers = size});
    EXPECT_TRUE(job.ok()) << job.status();
    const SequenceData data(data::Generate({.seed = 5, .users = 30, .items = 30, .min_length = 3, .max_length = 12}).log, nullptr, "log");
    const support::TempFolder folder;
    testing::internal::CaptureStdout();
    auto output = RunOutput::Create(folder / "out", LogFormat::JSON);
    ps::TableHost host(1);
    rpc::MemoryStore store;
    auto groups = comm::ThreadGroup::Create(size, "dp");
    Result result;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        ps::LocalClient client(host, static_cast<uint32_t>(rank), static_cast<uint32_t>(size));
        const auto place = DeviceOf(*job, rank, size);
        ASSERT_TRUE(place.ok()) << place.status();
        comm::DeviceGroup device_group;
        if (place->device.is_cuda() && size > 1) {
          auto made = MakeDeviceGroup(*job, *place, groups[rank].get(), &store);
          ASSERT_TRUE(made.ok()) << made.status();
          device_group = *std::move(made);
        }
        ReplicaEnvironment environment{.group = groups[rank].get(),
                                       .client = &client,
                                       .output = rank == 0 ? output->get() : nullptr,
                                       .device = place->device,
                                       .device_group = device_group.group.get()};
        if (rank == 0) environment.on_step = [&](const StepRecord& record) { result.losses.push_back(record.loss); };
        const auto summary = RunReplica(*job, data, environment);
        ASSERT_TRUE(summary.ok()) << summary.status();
        if (rank != 0) return;
        result.params_hash = summary->params_hash;
        result.metrics = summary->metrics;
      });
    }
    for (std::thread& thread : threads) thread.join();
    testing::internal::GetCapturedStdout();
    return result;
  }

  void ExpectNear(const Result& result, const Result& expected, double tolerance) {
    ASSERT_EQ(result.losses.size(), 6u);
    ASSERT_EQ(expected.losses.size(), 6u);
    for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(result.losses[i] / expected.losses[i], 1, tolerance) << "step " << i + 1;
    EXPECT_NE(result.losses.front(), result.losses.back());
  }
  void ExpectLikeOthers(const std::string& transport) {
    for (const char* placement : {"PS", "REPLICATED"}) {
      SCOPED_TRACE(placement);
      const std::string place = std::string("placement=") + placement;
      const std::vector<std::string> cuda{"device=CUDA", transport, place}, cpu{"device=CPU", place};
      const Result two = Run(2, cuda), again = Run(2, cuda);
      ExpectNear(two, Run(2, cpu), 2e-5);
      ExpectNear(two, Run(1, cuda), 2e-5);
      EXPECT_EQ(two.losses, again.losses);
      EXPECT_EQ(two.params_hash, again.params_hash);
      EXPECT_EQ(two.metrics, again.metrics);
    }
  }
};

TEST_F(CudaReplicasTest, ThroughTheHostTwoTrainAsOneAndAsOnTheCpu) { ExpectLikeOthers("parallel.transport=HOST"); }

TEST_F(CudaReplicasTest, OverNcclTwoTrainAsOneAndAsOnTheCpu) {
#ifndef TANDEM_CUDA_EMULATOR
  if (QueryCuda().num_devices < 2) GTEST_SKIP() << "one GPU";
#endif
  ExpectLikeOthers("parallel.transport=NCCL");
  const std::vector<std::string> sets{"device=CUDA", "parallel.transport=NCCL"}, host{"device=CUDA", "parallel.transport=HOST"};
  EXPECT_EQ(Run(2, sets).params_hash, Run(2, host).params_hash);  // two addends have one sum
}

}  // namespace
}  // namespace tandem::loop
