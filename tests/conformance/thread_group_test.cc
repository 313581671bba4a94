// Sends without buffers, which find ranks that would wait for each other.
#include "trainer/comm/host/thread_group.h"

#include "tests/conformance/group_harness.h"

namespace tandem::comm {
namespace {

ArrayView View(Array<float>& values) {
  return DenseView(values.data(), {static_cast<int64_t>(values.size())});
}

std::vector<std::unique_ptr<ProcessGroup>> GroupsThatWait(int size, absl::Duration timeout) {
  return ThreadGroup::Create(size, "world", timeout, ThreadGroup::Sending::WAITS_FOR_RECV);
}

TEST(ThreadGroupTest, ASendWithoutBuffersWaitsForItsRecv) {
  RunOnThreads(GroupsThatWait(2, absl::Seconds(10)), [&](ProcessGroup& world) {
    const auto split = world.Split(0, world.rank(), "split", Soon());
    ASSERT_TRUE(split.ok()) << split.status();
    for (ProcessGroup* group : {&world, split->get()}) {
      Array<float> values(3, 1.0f + static_cast<float>(group->rank()));
      if (group->rank() == 0) {
        const Work work = group->Send(View(values), 1, Args());
        absl::SleepFor(absl::Milliseconds(30));
        EXPECT_FALSE(work.done());
        EXPECT_TRUE(work.Wait(Soon()).ok());
      } else {
        absl::SleepFor(absl::Milliseconds(100));
        ASSERT_TRUE(group->Recv(View(values), 0, Args()).Wait(Soon()).ok());
        EXPECT_EQ(values[2], 1);
      }
    }
  });
}

TEST(ThreadGroupTest, RanksThatBothSendFirstAreFoundAndExchangesAreNot) {
  RunOnThreads(GroupsThatWait(2, absl::Milliseconds(200)), [](ProcessGroup& group) {
    Array<float> sent(100, 5), received(100);
    const int peer = 1 - group.rank();
    ASSERT_TRUE(group.SendRecv(View(sent), peer, View(received), peer, Args()).Wait(Soon()).ok());
    EXPECT_EQ(received[99], 5);
    const Work send = group.Send(View(sent), peer, Args());
    const Work receive = group.Recv(View(received), peer, Args());
    const absl::Status status = send.Wait(Soon());
    EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "did not arrive")) << status;
    EXPECT_FALSE(receive.Wait(Soon()).ok());
  });
}

}  // namespace
}  // namespace tandem::comm
