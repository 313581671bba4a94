// SharedServer and SharedStreams together: streams through shared memory, without failures and with
// a slow or missing peer.
// Also covers machines without shared memory.
#include "rpc/shared/stream.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>

#include "absl/synchronization/notification.h"
#include "rpc/channel.h"
#include "tests/rpc/shared/stream_harness.h"

namespace tandem::rpc {
namespace {

// Replies at once and keeps the messages.
Handler KeepRequests(HeldReplies& held) {
  return [&held](Payload request, Reply reply) {
    held.handler()(std::move(request), [](absl::StatusOr<Payload>) {});
    reply(Payload());
  };
}

TEST(SharedStreamTest, MessagesOfEverySizeAreAnsweredInOrder) {
  for (const size_t arena_bytes : {kSmallArena, size_t{128} << 20}) {
    auto server = StartServer(Echo, arena_bytes);
    SharedStreams streams;
    auto stream = Open(streams, server->address());
    std::vector<std::pair<std::string, Future<Payload>>> sent;
    for (const size_t size : {size_t{0}, size_t{1}, size_t{4095}, size_t{70'000}, size_t{300'000},
                              size_t{3} << 20, size_t{0}, size_t{64} << 20, size_t{5}}) {
      std::string bytes = Bytes(size, static_cast<char>(size));
      sent.emplace_back(bytes, stream->Send(Payload(bytes)));
    }
    for (const auto& [bytes, reply] : sent)
      EXPECT_TRUE(Text(reply) == bytes) << bytes.size() << " bytes, arena " << arena_bytes;
    EXPECT_FALSE(stream->broken());
  }
}

TEST(SharedStreamTest, AMessageAboveTheLimitIsRefusedAndTheNextStreamGoesOn) {
  auto server = StartServer(Echo);
  SharedStreams streams;
  auto stream = Open(streams, server->address());
  const auto reply = stream->Send(Payload(std::string((64 << 20) + 1, 'L'))).Wait(Soon());
  EXPECT_TRUE(absl::IsResourceExhausted(reply.status())) << reply.status();
  EXPECT_TRUE(stream->broken());
  EXPECT_EQ(Text(Open(streams, server->address())->Send(Payload(std::string("x")))), "x");
}

TEST(SharedStreamTest, TheWindowAndTheOrderOfRepliesHoldWhateverTheHandlerDoes) {
  HeldReplies held;
  auto server = StartServer(held.handler());
  SharedStreams streams;
  auto stream = Open(streams, server->address(), /*window=*/3);
  std::vector<Future<Payload>> replies;
  for (int i = 0; i < 5; ++i) replies.push_back(stream->Send(Payload(std::to_string(i))));
  ASSERT_TRUE(held.WaitFor(3));
  absl::SleepFor(absl::Milliseconds(50));
  EXPECT_EQ(held.count(), 3u);
  held.Take(2)(Payload(std::string("third")));
  held.Take(1)(Payload(std::string("second")));
  absl::SleepFor(absl::Milliseconds(20));
  EXPECT_FALSE(replies[1].ready());
  held.Take(0)(Payload(std::string("first")));
  EXPECT_EQ(Text(replies[0]) + Text(replies[1]) + Text(replies[2]), "firstsecondthird");
  ASSERT_TRUE(held.WaitFor(5));
  EXPECT_EQ(held.Request(4), "4");
  held.Take(3)(Payload());
  held.Take(4)(Payload());
  EXPECT_EQ(Text(replies[4]), "");
}

TEST(SharedStreamTest, AWideWindowNeverPutsMoreThanSixteenMessagesBeforeTheHandler) {
  HeldReplies held;
  auto server = StartServer(held.handler());
  SharedStreams streams;
  auto stream = Open(streams, server->address(), /*window=*/100);
  std::vector<Future<Payload>> replies;
  for (int i = 0; i < 40; ++i) replies.push_back(stream->Send(Payload(std::to_string(i))));
  ASSERT_TRUE(held.WaitFor(16));
  absl::SleepFor(absl::Milliseconds(50));
  EXPECT_EQ(held.count(), 16u);
  for (size_t i = 0; i < 40; ++i) {
    ASSERT_TRUE(held.WaitFor(i + 1));
    held.Take(i)(Payload(held.Request(i)));
    EXPECT_EQ(Text(replies[i]), std::to_string(i));
  }
}

TEST(SharedStreamTest, AnErrorEndsTheStreamWithItsCodeTextAndPlace) {
  auto server = StartServer([](Payload request, Reply reply) {
    if (request.Flatten() == "bad") return reply(absl::InvalidArgumentError("the cause"));
    reply(std::move(request));
  });
  SharedStreams streams;
  auto stream = Open(streams, server->address());
  const auto good = stream->Send(Payload(std::string("good"))),
             bad = stream->Send(Payload(std::string("bad")));
  const auto later = stream->Send(Payload(std::string("later")));
  EXPECT_EQ(Text(good), "good");
  for (const auto& reply : {bad, later}) {
    const absl::Status status = reply.Wait(Soon()).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_EQ(std::string(status.message())
                  .rfind("the cause (" + kMethod + " at " + server->address(), 0),
              0u)
        << status;
  }
  EXPECT_TRUE(stream->broken());
}

TEST(SharedStreamTest, ADroppedReplyIsCancelled) {
  auto server = StartServer([](Payload, Reply) {});
  SharedStreams streams;
  const auto reply = Open(streams, server->address())->Send(Payload(std::string("x")));
  EXPECT_TRUE(absl::IsCancelled(reply.Wait(Soon()).status()));
}

// dmlc/ps-lite#68: a server dies, and clients that wait for it hang.
TEST(SharedStreamTest, AServerThatGoesEndsItsStreamsAsUnavailableAndLateRepliesDoNothing) {
  HeldReplies held;
  auto server = StartServer(held.handler());
  SharedStreams streams;
  auto stream = Open(streams, server->address());
  const auto reply = stream->Send(Payload(std::string("x")));
  ASSERT_TRUE(held.WaitFor(1));
  const std::string address = server->address();
  server = nullptr;
  EXPECT_TRUE(absl::IsUnavailable(reply.Wait(Soon()).status())) << reply.Wait(Soon()).status();
  held.Take(0)(Payload(std::string("late")));
  EXPECT_FALSE(streams.Open(address, kMethod).ok());
  server = StartServer(Echo, kSmallArena, address);
  EXPECT_EQ(Text(Open(streams, address)->Send(Payload(std::string("again")))), "again");
}

TEST(SharedStreamTest, ClosingAStreamOrAllOfThemCancelsWhatWaits) {
  HeldReplies held;
  auto server = StartServer(held.handler());
  auto streams = std::make_unique<SharedStreams>();
  auto first = Open(*streams, server->address()), second = Open(*streams, server->address());
  const auto a = first->Send(Payload(std::string("a"))),
             b = second->Send(Payload(std::string("b")));
  ASSERT_TRUE(held.WaitFor(2));
  first = nullptr;
  EXPECT_TRUE(absl::IsCancelled(a.Wait(Soon()).status()));
  EXPECT_FALSE(b.ready());
  streams = nullptr;
  EXPECT_FALSE(b.Wait(Soon()).ok());
  EXPECT_TRUE(second->broken());
}

TEST(SharedStreamTest, StreamsMayBeDestroyedInsideTheirOwnCallback) {
  auto server = StartServer(Echo);
  auto streams = std::make_unique<SharedStreams>();
  auto stream = Open(*streams, server->address());
  Promise<Done> destroyed;
  const auto future = destroyed.future();
  stream->Send(Payload(std::string("x"))).OnReady([&](const absl::StatusOr<Payload>&) {
    stream = nullptr;
    streams = nullptr;
    destroyed.Set(Done());
  });
  EXPECT_TRUE(future.Wait(Soon()).ok());
}

TEST(SharedStreamTest, ReceivedMessagesOutliveTheStreamAndBothItsEnds) {
  HeldReplies held;
  const std::string bytes = Bytes(1 << 20, 'k');
  Payload kept;
  {
    auto server = StartServer(held.handler());
    SharedStreams streams;
    auto stream = Open(streams, server->address());
    const auto reply = stream->Send(Payload(bytes));
    ASSERT_TRUE(held.WaitFor(1));
    held.Take(0)(Payload(Bytes(1 << 20, 'r')));
    kept = *reply.Wait(Soon());
  }
  EXPECT_TRUE(kept.Flatten() == Bytes(1 << 20, 'r'));
  EXPECT_TRUE(held.Request(0) == bytes);
}

// PaddlePaddle/Paddle#10155: a server's memory grows.
TEST(SharedStreamTest, AHandlerThatKeepsMessagesHoldsAQuarterOfTheArenaAndCopiesTheRest) {
  HeldReplies held;
  auto server = StartServer(KeepRequests(held), /*arena_bytes=*/size_t{4} << 20);
  SharedStreams streams;
  auto stream = Open(streams, server->address());
  for (int i = 0; i < 40; ++i)
    EXPECT_EQ(Text(stream->Send(Payload(Bytes(200'000, static_cast<char>(i))))), "") << i;
  for (int i = 0; i < 40; ++i)
    EXPECT_TRUE(held.Request(static_cast<size_t>(i)) == Bytes(200'000, static_cast<char>(i))) << i;
  held.DropRequests();
  EXPECT_EQ(Text(stream->Send(Payload(Bytes(200'000, 'z')))), "");
}

TEST(SharedStreamTest, AHandlerThatKeepsMoreMessagesThanThereAreSlotsHoldsUpNobody) {
  HeldReplies held;
  auto server = StartServer(KeepRequests(held));
  SharedStreams streams;
  auto stream = Open(streams, server->address());
  std::vector<Future<Payload>> replies;
  for (int i = 0; i < 400; ++i)
    replies.push_back(stream->Send(Payload(std::string(65'536, static_cast<char>(i)))));
  for (const auto& reply : replies) ASSERT_EQ(Text(reply), "");
  for (size_t i = 0; i < 400; ++i)
    EXPECT_TRUE(held.Request(i) == std::string(65'536, static_cast<char>(i))) << i;
}

TEST(SharedStreamTest, AClientThatDoesNotReadItsRepliesHoldsUpOnlyItself) {
  auto server =
      StartServer([](Payload, Reply reply) { reply(Payload(Bytes(100'000, 'r'))); }, kSmallArena);
  SharedStreams slow_streams, streams;
  auto slow = Open(slow_streams, server->address(), /*window=*/8);
  absl::Mutex gate;
  gate.Lock();
  slow->Send(Payload(std::string("1"))).OnReady([&](const absl::StatusOr<Payload>&) {
    absl::MutexLock lock(&gate);
  });
  std::vector<Future<Payload>> waiting;
  for (int i = 0; i < 20; ++i) waiting.push_back(slow->Send(Payload(std::string("n"))));
  auto quick = Open(streams, server->address());
  for (int i = 0; i < 50; ++i)
    EXPECT_EQ(Text(quick->Send(Payload(std::string("q")))).size(), 100'000u);
  EXPECT_FALSE(waiting.back().ready());
  gate.Unlock();
  for (const auto& reply : waiting) EXPECT_TRUE(Text(reply) == Bytes(100'000, 'r'));
}

TEST(SharedStreamTest, ManyStreamsOfManyThreadsDoNotMix) {
  auto server = StartServer(Echo, kSmallArena);
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      SharedStreams streams;
      std::vector<std::unique_ptr<ClientStream>> open;
      for (int s = 0; s < 8; ++s) open.push_back(Open(streams, server->address()));
      std::vector<std::pair<std::string, Future<Payload>>> sent;
      for (int i = 0; i < 200; ++i) {
        std::string bytes =
            std::to_string(t) + "-" + std::to_string(i) + Bytes(static_cast<size_t>(i) * 97, 'm');
        sent.emplace_back(bytes, open[static_cast<size_t>(i % 8)]->Send(Payload(bytes)));
      }
      for (const auto& [bytes, reply] : sent) right += Text(reply) == bytes;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(right, 4 * 200);
}

TEST(SharedStreamTest, WithoutSharedMemoryOpenSaysSoAndTheChannelWorks) {
  Server server;
  server.Handle(kService, "Push", MethodKind::STREAM, Echo);
  ASSERT_TRUE(server.Start("127.0.0.1:0").ok());
  SharedStreams streams;
  EXPECT_TRUE(absl::IsUnavailable(streams.Open(server.address(), kMethod).status()));
  Channel channel(server.address());
  EXPECT_EQ(Text(channel.OpenStream(kMethod)->Send(Payload(std::string("x")))), "x");
}

TEST(SharedStreamTest, AServerThatRefusesOneStreamIsNotAskedAgain) {
  auto server = StartServer(Echo);
  SharedStreams streams;
  auto stream = Open(streams, server->address(), 4, "/tandem.EmbeddingService/Nope");
  const absl::Status status = stream->Send(Payload(std::string("x"))).Wait(Soon()).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_NE(status.ToString().find("there is no stream"), std::string::npos) << status;
  EXPECT_FALSE(streams.Open(server->address(), kMethod).ok());
}

// A server that is stopped, or has no descriptors left, accepts no connection and sends nothing.
TEST(SharedStreamTest, AServerThatNeverWelcomesIsLeftForTheChannel) {
  const std::string address = "silent-" + std::to_string(getpid());
  const auto silent = LocalSocket::Listen(SharedSocketName(address));
  ASSERT_TRUE(silent.ok()) << silent.status();
  SharedStreams streams({}, /*welcome_timeout=*/absl::Milliseconds(20));
  auto stream = Open(streams, address);
  const absl::Status status = stream->Send(Payload(std::string("x"))).Wait(Soon()).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_NE(status.ToString().find("no shared memory: the server has not answered"),
            std::string::npos)
      << status;
  EXPECT_TRUE(stream->broken());
  EXPECT_FALSE(streams.Open(address, kMethod).ok()) << "the next stream goes another way";
}

TEST(SharedStreamTest, AServerWithoutDescriptorsClosesWhatItCannotTake) {
  const std::string name = "few-descriptors-" + std::to_string(getpid());
  const auto listening = LocalSocket::Listen(name);
  ASSERT_TRUE(listening.ok()) << listening.status();
  const auto first = LocalSocket::Connect(name), second = LocalSocket::Connect(name);
  ASSERT_TRUE(first.ok() && second.ok());
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const int next = dup(0);
  close(next);
  rlimit full = limit;
  full.rlim_cur = static_cast<rlim_t>(next);  // whatever is open stays so
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &full), 0);
  EXPECT_EQ((*listening)->Accept(), nullptr);
  EXPECT_EQ((*listening)->Accept(), nullptr) << "not only once";
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  std::string packet;
  EXPECT_EQ((*first)->Receive(&packet, kMaxPacketBytes), LocalSocket::Received::CLOSED);
  EXPECT_EQ((*second)->Receive(&packet, kMaxPacketBytes), LocalSocket::Received::CLOSED);
  const auto third = LocalSocket::Connect(name);
  ASSERT_TRUE(third.ok());
  EXPECT_NE((*listening)->Accept(), nullptr);
}

TEST(SharedStreamTest, ShutdownLetsMessagesWithTheirHandlersBeAnsweredWithinItsGrace) {
  HeldReplies held;
  auto server = StartServer(held.handler());
  SharedStreams streams;
  auto stream = Open(streams, server->address());
  const auto answered = stream->Send(Payload(std::string("a"))),
             late = stream->Send(Payload(std::string("b")));
  ASSERT_TRUE(held.WaitFor(2));
  const absl::Time begun = absl::Now();
  std::thread replier([&] {
    absl::SleepFor(absl::Milliseconds(50));
    held.Take(0)(Payload(std::string("in time")));
  });
  server->Shutdown(0.3);
  EXPECT_GE(absl::Now() - begun, absl::Milliseconds(290)) << "the second has no answer";
  EXPECT_LT(absl::Now() - begun, absl::Seconds(5));
  replier.join();
  EXPECT_EQ(Text(answered), "in time");
  EXPECT_TRUE(absl::IsUnavailable(late.Wait(Soon()).status()));
}

// A payload's owner ends by sending or answering a message. With a lock held, that would wait for
// ever.
// Messages larger than the arena end on the streams' own threads.
TEST(SharedStreamTest, OwnersOfSentBytesEndWhereNoLockIsHeld) {
  HeldReplies held;
  auto server = StartServer(held.handler(), kSmallArena);
  SharedStreams streams;
  auto stream = Open(streams, server->address());
  const std::string bytes = Bytes(1 << 20, 'o');
  const auto owned = [&bytes](std::function<void()> at_end) {
    Payload payload;
    payload.Append(bytes.data(), bytes.size(),
                   std::shared_ptr<const void>(bytes.data(), [at_end](const void*) { at_end(); }));
    return payload;
  };
  std::vector<Future<Payload>> replies(2);
  absl::Notification sent;
  replies[0] = stream->Send(owned([&] {
    replies[1] = stream->Send(Payload(std::string("from the end of the first")));
    sent.Notify();
  }));
  ASSERT_TRUE(sent.WaitForNotificationWithTimeout(absl::Seconds(20)));
  ASSERT_TRUE(held.WaitFor(2));
  Reply second = held.Take(1);
  held.Take(0)(owned([&] { second(Payload(std::string("two"))); }));
  EXPECT_EQ(Text(replies[0]).size(), bytes.size());
  EXPECT_EQ(Text(replies[1]), "two");
}

// Untaken echoes hold messages, which hold the stream's memory.
TEST(SharedStreamTest, EchoesThatNobodyTakesAnyMoreKeepNothing) {
  absl::Notification attached;  // a reply that is here earlier would call back on this thread
  auto server = StartServer(
      [&attached](Payload request, Reply reply) {
        attached.WaitForNotification();
        Echo(std::move(request), std::move(reply));
      },
      size_t{4} << 20);
  SharedStreams streams;
  auto stream = Open(streams, server->address(), /*window=*/16);
  absl::Mutex gate;
  gate.Lock();
  stream->Send(Payload(std::string("1"))).OnReady([&](const absl::StatusOr<Payload>&) {
    absl::MutexLock lock(&gate);
  });
  attached.Notify();
  for (int i = 0; i < 30; ++i) stream->Send(Payload(Bytes(1 << 20, 'e')));
  absl::SleepFor(
      absl::Milliseconds(100));  // until the server has more to say than there is room for
  stream = nullptr;
  gate.Unlock();
  EXPECT_TRUE(Eventually([] { return NumMapped() == 0; })) << NumMapped();
}

TEST(SharedStreamTest, ASecondServerCannotTakeTheNameOfTheFirst) {
  auto server = StartServer(Echo);
  EXPECT_TRUE(
      absl::IsUnavailable(LocalSocket::Listen(SharedSocketName(server->address())).status()));
}

TEST(SharedStreamTest, NothingAppearsInDevShm) {
  const auto count = [] {
    return std::distance(std::filesystem::directory_iterator("/dev/shm"),
                         std::filesystem::directory_iterator());
  };
  const auto before = count();
  auto server = StartServer(Echo);
  SharedStreams streams;
  auto stream = Open(streams, server->address());
  EXPECT_EQ(Text(stream->Send(Payload(Bytes(1 << 20, 'x')))).size(), size_t{1} << 20);
  EXPECT_LE(count(), before);
}

}  // namespace
}  // namespace tandem::rpc
