// NCCL ranks on one card. NCCL refuses them unless each is a process that claims a host of its own
// (NCCL_HOSTID).
// Such ranks talk through sockets: the test shows calls, order and values, but no speed. Each rank
// is this program again, configured by its environment.
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/memory/cuda_runtime_calls.h"
#include "tests/conformance/file_store.h"
#include "tests/conformance/group_harness.h"
#include "tests/gpu/staged_gpt.h"
#include "trainer/comm/device/nccl_group.h"

extern char** environ;

namespace tandem::comm {
namespace {

constexpr char kRank[] = "TANDEM_TEST_RANK", kSize[] = "TANDEM_TEST_RANKS",
               kStore[] = "TANDEM_TEST_STORE";
constexpr int64_t kLarge = 3'000'001;
constexpr Device kCard{DeviceKind::CUDA, 0};

Work Exchange(ProcessGroup& group, const ArrayView& out, const ArrayView& in,
              std::vector<Work>& works) {
  const int n = group.size(), next = (group.rank() + 1) % n, previous = (group.rank() + n - 1) % n;
  const bool even = group.rank() % 2 == 0;
  works.push_back(even ? group.Send(out, next, {}) : group.Recv(in, previous, {}));
  return even ? group.Recv(in, previous, {}) : group.Send(out, next, {});
}

void CheckCollectives(ProcessGroup& group) {
  const int n = group.size(), rank = group.rank();
  for (const int64_t count : {int64_t{1}, int64_t{1001}, kLarge}) {
    Array<float> values(static_cast<size_t>(count), static_cast<float>(rank + 1));
    ASSERT_TRUE(group.AllReduce(DenseView(values.data(), {count}), {}).Wait(Soon()).ok());
    EXPECT_EQ(std::count(values.begin(), values.end(), static_cast<float>(n * (n + 1) / 2)), count);
  }
  Array<int64_t> mine(7, rank), all(static_cast<size_t>(7 * n), -1), part(7), received(7, -1);
  const ArrayView one = DenseView(mine.data(), {7}), many = DenseView(all.data(), {7 * n});
  ASSERT_TRUE(group.AllGather(many, one, {}).Wait(Soon()).ok());
  for (int r = 0; r < n; ++r) EXPECT_EQ(all[static_cast<size_t>(7 * r + 6)], r);
  ASSERT_TRUE(group.ReduceScatter(DenseView(part.data(), {7}), many, {}).Wait(Soon()).ok());
  EXPECT_EQ(part[3], n * rank);
  std::vector<Work> works;
  ASSERT_TRUE(Exchange(group, one, DenseView(received.data(), {7}), works).Wait(Soon()).ok());
  ASSERT_TRUE(works[0].Wait(Soon()).ok());
  EXPECT_EQ(received[0], (rank + n - 1) % n);
  ASSERT_TRUE(group.Broadcast(DenseView(received.data(), {7}), n - 1, {}).Wait(Soon()).ok());
  EXPECT_EQ(received[0], n - 2);
  std::vector<int64_t> counts(static_cast<size_t>(n), 7);
  Array<int64_t> exchanged(static_cast<size_t>(7 * n), -1);
  ASSERT_TRUE(group.AllToAllV(DenseView(exchanged.data(), {7 * n}), counts, many, counts, {})
                  .Wait(Soon())
                  .ok());
  EXPECT_EQ(exchanged[0], rank);
  ASSERT_TRUE(group.Barrier({}).Wait(Soon()).ok());
}

// The computing stream writes the device array right before the collective.
void CheckOrderAfterAStream(ProcessGroup& group) {
  ThreadPool pool(1);
  Stream stream(&pool, kCard);
  Array<float> source(kLarge, static_cast<float>(group.rank() + 1)), result(kLarge, -1);
  auto buffer = group.Allocate(kLarge * sizeof(float));
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  for (int round = 0; round < 5; ++round) {
    stream.Fail(
        cuda::CopyAsync((*buffer)->data(), source.data(), kLarge * sizeof(float), stream.queue()));
    const Work work =
        group.AllReduce(ArrayView((*buffer)->data(), DType::F32, {kLarge}), {.stream = &stream});
    ASSERT_TRUE(group.Await(work, Soon()).ok());
    stream.Fail(
        cuda::CopyAsync(result.data(), (*buffer)->data(), kLarge * sizeof(float), stream.queue()));
    ASSERT_TRUE(stream.Wait().ok());
    const auto sum = static_cast<float>(group.size() * (group.size() + 1) / 2);
    EXPECT_EQ(std::count(result.begin(), result.end(), sum), kLarge) << "round " << round;
  }
}

// The group of all ranks, of which this process is one.
absl::StatusOr<std::unique_ptr<ProcessGroup>> MakeWorld() {
  static FileStore store(std::getenv(kStore));
  return MakeNcclGroup({.store = &store,
                        .name = "world",
                        .rank = std::atoi(std::getenv(kRank)),
                        .size = std::atoi(std::getenv(kSize)),
                        .device = kCard,
                        .timeout = absl::Seconds(30)},
                       Soon());
}

// One rank, in a process of its own.
TEST(NcclOneCardRank, DISABLED_Computes) {
  auto group = MakeWorld();
  ASSERT_TRUE(group.ok()) << group.status();
  const int rank = (*group)->rank();
  CheckCollectives(**group);
  CheckOrderAfterAStream(**group);
  auto half = (*group)->Split(rank % 2, -rank, "half", Soon());
  ASSERT_TRUE(half.ok()) << half.status();
  if ((*half)->size() > 1) CheckCollectives(**half);
}

// One rank of a pipeline. A message of 8 MB is above NCCL's buffers, so a send waits for its
// receive.
TEST(NcclOneCardRank, DISABLED_RunsAStage) {
  const auto group = MakeWorld();
  ASSERT_TRUE(group.ok()) << group.status();
  tandem::testing::ExpectStagesTrainAsTheWhole({.dim = 512, .length = 4096}, **group, kCard);
}

// Starts this program as the rank that the test `body` is.
pid_t Start(const std::string& body, int rank, int size, const std::string& store,
            const std::string& log) {
  std::vector<std::string> variables;  // the first of two equal names counts
  for (const std::string& variable :
       {absl::StrCat(kRank, "=", rank), absl::StrCat(kSize, "=", size),
        absl::StrCat(kStore, "=", store), absl::StrCat("NCCL_HOSTID=tandem", rank),
        std::string("NCCL_SOCKET_IFNAME=lo"), std::string("NCCL_IB_DISABLE=1"),
        std::string("NCCL_NVLS_ENABLE=0"), std::string("NCCL_MNNVL_ENABLE=0"),
        std::string("NCCL_MAX_CTAS=1"), std::string("NCCL_RAS_ENABLE=0"),
        std::string("NCCL_DEBUG=WARN")}) {
    variables.push_back(variable);
  }
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (!absl::StartsWith(*variable, "GTEST_")) variables.emplace_back(*variable);
  }
  std::vector<char*> environment;
  for (std::string& variable : variables) environment.push_back(variable.data());
  environment.push_back(nullptr);
  std::string program = "/proc/self/exe",
              which = absl::StrCat("--gtest_filter=NcclOneCardRank.DISABLED_", body),
              all = "--gtest_also_run_disabled_tests";
  char* arguments[] = {program.data(), which.data(), all.data(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t child = -1;
  EXPECT_EQ(posix_spawn(&child, program.c_str(), &actions, nullptr, arguments, environment.data()),
            0);
  posix_spawn_file_actions_destroy(&actions);
  return child;
}

// Kills the ranks that still run at the deadline. Returns true if all ranks exited with success.
bool AllEndWell(const std::vector<pid_t>& ranks, absl::Time deadline) {
  bool well = true;
  for (const pid_t rank : ranks) {
    if (rank <= 0) {  // the rank did not start
      well = false;
      continue;
    }
    int status = -1;
    while (waitpid(rank, &status, WNOHANG) == 0) {
      if (absl::Now() > deadline) kill(rank, SIGKILL);
      absl::SleepFor(absl::Milliseconds(20));
    }
    well &= WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  return well;
}

// Runs the test `body` as `size` processes on one card.
void RunOnOneCard(const std::string& body, int size, absl::Duration timeout) {
  if (QueryCuda().num_devices == 0) GTEST_SKIP() << QueryCuda().why_none;
  if (const auto found = FindNccl(); !found.ok()) GTEST_SKIP() << found.status();
  const FileStore store;
  std::vector<pid_t> ranks;
  const auto log = [&](int rank) { return absl::StrCat(store.directory(), "/log", rank); };
  for (int rank = 0; rank < size; ++rank)
    ranks.push_back(Start(body, rank, size, store.directory(), log(rank)));
  EXPECT_TRUE(AllEndWell(ranks, absl::Now() + timeout));
  if (!::testing::Test::HasFailure()) return;
  for (int rank = 0; rank < size; ++rank) {
    std::ifstream text(log(rank));
    ADD_FAILURE() << "rank " << rank << ":\n"
                  << std::string(std::istreambuf_iterator<char>(text), {});
  }
}

class NcclOneCardTest : public ::testing::TestWithParam<int> {};

TEST_P(NcclOneCardTest, RanksOfOneCardComputeTheClosedForms) {
  RunOnOneCard("Computes", GetParam(), absl::Seconds(30));
}

INSTANTIATE_TEST_SUITE_P(Sizes, NcclOneCardTest, ::testing::Values(2, 4));

TEST(NcclOneCardPipelineTest, FourStagesWithLargeMessagesTrainAsTheWholeModel) {
  RunOnOneCard("RunsAStage", 4, absl::Seconds(100));
}

}  // namespace
}  // namespace tandem::comm
