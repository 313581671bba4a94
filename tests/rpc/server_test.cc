// Server and Channel together, over loopback.
#include "rpc/server.h"

#include <atomic>
#include <cstring>
#include <gtest/gtest.h>
#include <thread>

#include "rpc/channel.h"

namespace tandem::rpc {
namespace {

constexpr char kService[] = "tandem.EmbeddingService";  // a service that reflection can describe
const std::string kUnary = std::string("/") + kService + "/Commit";
const std::string kStream = std::string("/") + kService + "/Push";

absl::Time Soon() { return absl::Now() + absl::Seconds(20); }

std::string Text(absl::StatusOr<Payload> payload) {
  return payload.ok() ? std::string(payload->Flatten()) : payload.status().ToString();
}
bool Contains(const absl::Status& status, const std::string& part) {
  return status.ToString().find(part) != std::string::npos;
}

// Holds replies until the test gives them out.
class HeldReplies {
 public:
  Handler handler() {
    return [this](Payload request, Reply reply) {
      absl::MutexLock lock(&mutex_);
      requests_.push_back(std::string(request.Flatten()));
      replies_.push_back(std::move(reply));
    };
  }
  bool WaitFor(size_t count) {
    absl::MutexLock lock(&mutex_);
    auto enough = [&] { return requests_.size() >= count; };
    return mutex_.AwaitWithTimeout(absl::Condition(&enough), absl::Seconds(20));
  }
  size_t count() {
    absl::MutexLock lock(&mutex_);
    return requests_.size();
  }
  Reply Take(size_t i) {
    absl::MutexLock lock(&mutex_);
    return std::exchange(replies_[i], nullptr);
  }

 private:
  absl::Mutex mutex_;
  std::vector<std::string> requests_;
  std::vector<Reply> replies_;
};

void Echo(Payload request, Reply reply) { reply(std::move(request)); }

std::unique_ptr<Server> StartServer(Handler unary, Handler stream) {
  auto server = std::make_unique<Server>();
  server->Handle(kService, "Commit", MethodKind::UNARY, std::move(unary));
  server->Handle(kService, "Push", MethodKind::STREAM, std::move(stream));
  const absl::Status status = server->Start("127.0.0.1:0");
  EXPECT_TRUE(status.ok()) << status;
  return server;
}

std::string Megabyte(char first) {
  std::string bytes(1 << 20, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(first + i * 7 + (i >> 11));
  return bytes;
}

TEST(ServerTest, UnaryCallsCarryBytesBothWays) {
  auto server = StartServer(Echo, Echo);
  Channel channel(server->address());
  for (const std::string& bytes :
       {std::string(), std::string("x"), Megabyte('a'), std::string(63 << 20, 'L')}) {
    EXPECT_TRUE(Text(channel.Call(kUnary, Payload(bytes), {}).Wait(Soon())) == bytes)
        << bytes.size();
  }
}

TEST(ServerTest, MessageAboveTheLimitIsRefusedAndTheConnectionGoesOn) {
  auto server = StartServer(Echo, Echo);
  Channel channel(server->address());
  const auto reply =
      channel.Call(kUnary, Payload(std::string((64 << 20) + 1, 'L')), {}).Wait(Soon());
  EXPECT_TRUE(absl::IsResourceExhausted(reply.status())) << reply.status();
  EXPECT_EQ(Text(channel.Call(kUnary, Payload(std::string("x")), {}).Wait(Soon())), "x");
}

TEST(ServerTest, SentSlicesAreReleasedAndReceivedOnesOutliveTheServer) {
  auto server = StartServer(Echo, Echo);
  auto owner = std::make_shared<const std::string>(Megabyte('o'));
  const std::weak_ptr<const std::string> watch = owner;
  Payload kept;
  {
    Channel channel(server->address());
    Payload request;
    request.Append(owner->data(), owner->size(), owner);
    kept = *channel.Call(kUnary, std::move(request), {}).Wait(Soon());
  }
  server = nullptr;
  EXPECT_TRUE(kept.Flatten() == *owner);
  owner.reset();
  for (int i = 0; i < 2000 && !watch.expired(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_TRUE(watch.expired());
}

TEST(ServerTest, EveryStatusCodeTravelsWithItsText) {
  auto server = StartServer(
      [](Payload request, Reply reply) {
        reply(absl::Status(static_cast<absl::StatusCode>(request.Flatten()[0]), "the cause"));
      },
      Echo);
  Channel channel(server->address());
  for (char code = 1; code <= 16; ++code) {
    const auto status =
        channel.Call(kUnary, Payload(std::string(1, code)), {}).Wait(Soon()).status();
    EXPECT_EQ(status.raw_code(), code);
    EXPECT_EQ(std::string(status.message())
                  .rfind("the cause (" + kUnary + " at " + channel.address() + ", after 0.", 0),
              0u)
        << status;
  }
}

TEST(ServerTest, ALongErrorTextIsCutAndArrives) {
  auto server = StartServer(
      [](Payload, Reply reply) { reply(absl::DataLossError(std::string(100000, '%'))); }, Echo);
  Channel channel(server->address());
  const auto status = channel.Call(kUnary, Payload(), {}).Wait(Soon()).status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status.code();
  EXPECT_GT(status.message().size(), 7000u);
}

TEST(ServerTest, UnknownMethodIsUnimplemented) {
  auto server = StartServer(Echo, Echo);
  Channel channel(server->address());
  EXPECT_TRUE(absl::IsUnimplemented(
      channel.Call("/tandem.EmbeddingService/Nope", Payload(), {}).Wait(Soon()).status()));
}

TEST(ServerTest, ADroppedReplyIsCancelled) {
  auto server = StartServer([](Payload, Reply) {}, [](Payload, Reply) {});
  Channel channel(server->address());
  EXPECT_TRUE(absl::IsCancelled(channel.Call(kUnary, Payload(), {}).Wait(Soon()).status()));
  auto stream = channel.OpenStream(kStream);
  EXPECT_TRUE(absl::IsCancelled(stream->Send(Payload(std::string("x"))).Wait(Soon()).status()));
  EXPECT_TRUE(stream->broken());
}

TEST(ServerTest, PortInUseIsUnavailableAndNamesIt) {
  auto first = StartServer(Echo, Echo);
  Server second;
  const absl::Status status = second.Start(first->address());
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_EQ(std::string(status.message()), "port in use: " + first->address());
}

TEST(ServerTest, AnAddressThatCannotBeBoundIsInvalid) {
  for (const char* listen :
       {"127.0.0.1", "127.0.0.1:", "no.such.host.invalid:1", "8.8.8.8:0", "127.0.0.1:http"}) {
    Server server;
    EXPECT_TRUE(absl::IsInvalidArgument(server.Start(listen))) << listen;
  }
}

TEST(ServerTest, HealthCheckAnswersServing) {
  auto server = StartServer(Echo, Echo);
  Channel channel(server->address());
  EXPECT_EQ(Text(channel.Call("/grpc.health.v1.Health/Check", Payload(), {}).Wait(Soon())),
            "\x08\x01");
}

TEST(ServerTest, HealthCheckSaysReadyOnceTheOwnerDoes) {
  auto server = StartServer(Echo, Echo);
  Channel channel(server->address());
  const auto ready = [&channel] {  // the request names the service, in field 1
    return Text(channel
                    .Call("/grpc.health.v1.Health/Check",
                          Payload(absl::StrCat("\n\x05", Server::kReady)), {})
                    .Wait(Soon()));
  };
  EXPECT_EQ(ready(), "\x08\x02");
  server->SetReady();
  EXPECT_EQ(ready(), "\x08\x01");
}

TEST(ServerTest, ReflectionListsAndDescribesTheService) {
  auto server = StartServer(Echo, Echo);
  Channel channel(server->address());
  auto stream =
      channel.OpenStream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo");
  const std::string list = Text(stream->Send(Payload(std::string("\x3a\x01*"))).Wait(Soon()));
  EXPECT_NE(list.find(kService), std::string::npos) << list;
  const std::string name = kService;
  const std::string file =
      Text(stream->Send(Payload("\x22" + std::string(1, static_cast<char>(name.size())) + name))
               .Wait(Soon()));
  EXPECT_NE(file.find("PushRequest"), std::string::npos);
}

class StrangerTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const MethodKind kind : {MethodKind::UNARY, MethodKind::STREAM}) {
      server_.Handle(kService, kind == MethodKind::UNARY ? "Commit" : "Push", kind,
                     [this](Payload request, Reply reply) {
                       ++num_handled_;
                       reply(std::move(request));
                     });
    }
    ASSERT_TRUE(server_.Start("127.0.0.1:0").ok());
  }
  static Credentials Of(const std::string& secret) {
    return Credentials(*Secret::FromText(secret, "a test"));
  }

  const Credentials job_ = Of("the secret of this job"), other_ = Of("the secret of another job");
  std::atomic<int> num_handled_{0};
  Server server_{job_};
};

TEST_F(StrangerTest, CallsAndStreamsWithoutTheJobsSecretAreRefused) {
  for (const Credentials& shown : {Credentials(), other_}) {
    Channel channel(server_.address(), shown);
    const absl::Status unary =
        channel.Call(kUnary, Payload(std::string("x")), {.idempotent = true}).Wait(Soon()).status();
    EXPECT_TRUE(absl::IsUnauthenticated(unary)) << unary;
    EXPECT_TRUE(Contains(unary, "--secret-file")) << unary;
    auto stream = channel.OpenStream(kStream);
    const absl::Status streamed = stream->Send(Payload(std::string("x"))).Wait(Soon()).status();
    EXPECT_TRUE(absl::IsUnauthenticated(streamed)) << streamed;
    EXPECT_TRUE(stream->broken());
  }
  EXPECT_EQ(num_handled_, 0);
}

TEST_F(StrangerTest, CallsAndStreamsWithTheJobsSecretAreServed) {
  Channel channel(server_.address(), job_);
  EXPECT_EQ(Text(channel.Call(kUnary, Payload(std::string("x")), {}).Wait(Soon())), "x");
  auto stream = channel.OpenStream(kStream);
  EXPECT_EQ(Text(stream->Send(Payload(std::string("y"))).Wait(Soon())), "y");
  EXPECT_EQ(num_handled_, 2);
}

// On the wire a unary call is a stream whose client sends one message. This client never sends it.
TEST_F(StrangerTest, ARefusalDoesNotWaitForTheMessage) {
  Channel channel(server_.address());
  for (const std::string& method : {kUnary, kStream}) {
    const auto stream = channel.OpenStream(method);
    for (int i = 0; i < 4000 && !stream->broken(); ++i) absl::SleepFor(absl::Milliseconds(5));
    EXPECT_TRUE(stream->broken()) << method;
  }
}

TEST_F(StrangerTest, HealthAndReflectionNeedNoSecret) {
  Channel channel(server_.address());
  EXPECT_EQ(Text(channel.Call("/grpc.health.v1.Health/Check", Payload(), {}).Wait(Soon())),
            "\x08\x01");
  auto stream =
      channel.OpenStream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo");
  const std::string list = Text(stream->Send(Payload(std::string("\x3a\x01*"))).Wait(Soon()));
  EXPECT_NE(list.find(kService), std::string::npos) << list;
}

TEST(ServerTest, AJobWithoutASecretServesWhoeverShowsOne) {
  auto server = StartServer(Echo, Echo);
  Channel channel(server->address(), Credentials(*Secret::Draw()));
  EXPECT_EQ(Text(channel.Call(kUnary, Payload(std::string("x")), {}).Wait(Soon())), "x");
}

TEST(StreamTest, RepliesComeInTheOrderOfTheMessages) {
  auto server = StartServer(Echo, Echo);
  Channel channel(server->address());
  auto stream = channel.OpenStream(kStream, 3);
  std::vector<Future<Payload>> replies;
  for (int i = 0; i < 40; ++i)
    replies.push_back(stream->Send(Payload(Megabyte(static_cast<char>(i)))));
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(Text(replies[i].Wait(Soon())) == Megabyte(static_cast<char>(i))) << i;
  }
  EXPECT_FALSE(stream->broken());
}

TEST(StreamTest, FourMessagesAreHandledAtATimeAndAnsweredInTheirOrder) {
  constexpr size_t kAtOnce = 4, kMessages = 7;
  HeldReplies held;
  auto server = StartServer(Echo, held.handler());
  Channel channel(server->address());
  auto stream = channel.OpenStream(kStream, 8);
  std::vector<Future<Payload>> replies;
  for (size_t i = 0; i < kMessages; ++i)
    replies.push_back(stream->Send(Payload(std::to_string(i))));
  ASSERT_TRUE(held.WaitFor(kAtOnce));
  for (size_t i = kAtOnce; --i > 0;)
    held.Take(i)(Payload("r" + std::to_string(i)));  // the last one first
  EXPECT_EQ(held.count(), kAtOnce);                  // nothing has left: nothing more is read
  for (size_t i = 0; i < kAtOnce; ++i) EXPECT_FALSE(replies[i].ready());
  held.Take(0)(Payload("r0"));
  for (size_t i = 0; i < kMessages; ++i) {
    if (i >= kAtOnce) {
      ASSERT_TRUE(held.WaitFor(i + 1));
      held.Take(i)(Payload("r" + std::to_string(i)));
    }
    EXPECT_EQ(Text(replies[i].Wait(Soon())), "r" + std::to_string(i));
  }
}

TEST(StreamTest, AnErrorWaitsForTheAnswersBeforeIt) {
  HeldReplies held;
  auto server = StartServer(Echo, held.handler());
  Channel channel(server->address());
  auto stream = channel.OpenStream(kStream, 4);
  std::vector<Future<Payload>> replies;
  for (int i = 0; i < 3; ++i) replies.push_back(stream->Send(Payload(std::string("x"))));
  ASSERT_TRUE(held.WaitFor(3));
  held.Take(1)(absl::DataLossError("checksum"));
  held.Take(2)(Payload(std::string("too late")));
  EXPECT_FALSE(replies[0].ready());
  held.Take(0)(Payload(std::string("good")));
  EXPECT_EQ(Text(replies[0].Wait(Soon())), "good");
  for (int i = 1; i < 3; ++i) EXPECT_TRUE(absl::IsDataLoss(replies[i].Wait(Soon()).status())) << i;
}

TEST(StreamTest, NoMoreThanTheWindowIsOnItsWay) {
  // A message's slices are released once written. Slices outside the window must still be there.
  HeldReplies held;
  auto server = StartServer(Echo, held.handler());
  Channel channel(server->address());
  auto stream = channel.OpenStream(kStream, 2);
  std::vector<std::weak_ptr<const std::string>> queued;
  std::vector<Future<Payload>> replies;
  for (int i = 0; i < 5; ++i) {
    auto owner = std::make_shared<const std::string>(1000, static_cast<char>('0' + i));
    queued.push_back(owner);
    Payload message;
    message.Append(owner->data(), owner->size(), owner);
    replies.push_back(stream->Send(std::move(message)));
  }
  ASSERT_TRUE(held.WaitFor(1));
  for (int i = 2; i < 5; ++i) EXPECT_FALSE(queued[i].expired()) << i;
  for (size_t i = 0; i < 5; ++i) {
    ASSERT_TRUE(held.WaitFor(i + 1));
    for (size_t later = i + 2; later < 5; ++later) EXPECT_FALSE(queued[later].expired()) << later;
    held.Take(i)(Payload());
    EXPECT_TRUE(replies[i].Wait(Soon()).ok());
  }
}

TEST(StreamTest, AnErrorReplyEndsTheStreamForAllThatWait) {
  HeldReplies held;
  auto server = StartServer(Echo, held.handler());
  Channel channel(server->address());
  auto stream = channel.OpenStream(kStream, 2);
  std::vector<Future<Payload>> replies;
  for (int i = 0; i < 5; ++i) replies.push_back(stream->Send(Payload(std::string("x"))));
  ASSERT_TRUE(held.WaitFor(1));
  held.Take(0)(Payload(std::string("good")));
  ASSERT_TRUE(held.WaitFor(2));
  held.Take(1)(absl::DataLossError("checksum"));
  EXPECT_EQ(Text(replies[0].Wait(Soon())), "good");
  for (int i = 1; i < 5; ++i) {
    const absl::Status status = replies[i].Wait(Soon()).status();
    EXPECT_TRUE(absl::IsDataLoss(status) && Contains(status, "checksum")) << status;
  }
  EXPECT_TRUE(stream->broken());
  EXPECT_TRUE(absl::IsDataLoss(stream->Send(Payload()).Wait(Soon()).status()));
}

TEST(StreamTest, ClosingTheStreamCompletesEverySend) {
  HeldReplies held;
  auto server = StartServer(Echo, held.handler());
  Channel channel(server->address());
  auto stream = channel.OpenStream(kStream, 2);
  std::vector<Future<Payload>> replies;
  for (int i = 0; i < 5; ++i) replies.push_back(stream->Send(Payload(std::string("x"))));
  ASSERT_TRUE(held.WaitFor(1));
  stream = nullptr;
  for (auto& reply : replies) EXPECT_TRUE(absl::IsCancelled(reply.Wait(Soon()).status()));
  held.Take(0)(Payload());  // to a peer that is gone
}

TEST(ChannelTest, DeadlineEndsACallThatIsNeverAnswered) {
  HeldReplies held;
  auto server = StartServer(held.handler(), Echo);
  Channel channel(server->address());
  const auto status =
      channel.Call(kUnary, Payload(), {.deadline = absl::Milliseconds(100)}).Wait(Soon()).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_TRUE(Contains(status, kUnary) && Contains(status, channel.address()) &&
              Contains(status, "after 0.1 s"))
      << status;
  ASSERT_TRUE(held.WaitFor(1));
  held.Take(0)(Payload(std::string("too late")));
}

TEST(ChannelTest, AbortCompletesWhatIsInFlightAndRefusesNewCalls) {
  HeldReplies held;
  auto server = StartServer(held.handler(), held.handler());
  Channel channel(server->address());
  auto stream = channel.OpenStream(kStream);
  const auto unary = channel.Call(kUnary, Payload(), {});
  const auto sent = stream->Send(Payload(std::string("x")));
  ASSERT_TRUE(held.WaitFor(2));
  channel.Abort(absl::DataLossError("the reason"));
  channel.Abort(absl::InternalError("a later one"));
  for (const absl::Status& status :
       {unary.Wait(Soon()).status(), sent.Wait(Soon()).status(),
        channel.Call(kUnary, Payload(), {}).Wait(Soon()).status(),
        channel.OpenStream(kStream)->Send(Payload()).Wait(Soon()).status()}) {
    EXPECT_EQ(status, absl::DataLossError("the reason"));
  }
}

TEST(ChannelTest, DestroyingTheChannelCompletesEveryFutureFirst) {
  HeldReplies held;
  auto server = StartServer(held.handler(), held.handler());
  std::atomic<int> completed{0};
  auto channel = std::make_unique<Channel>(server->address());
  auto stream = channel->OpenStream(kStream);
  auto count = [&](const absl::StatusOr<Payload>& reply) {
    completed += absl::IsCancelled(reply.status());
  };
  for (int i = 0; i < 4; ++i) channel->Call(kUnary, Payload(), {}).OnReady(count);
  for (int i = 0; i < 4; ++i) stream->Send(Payload(std::string("x"))).OnReady(count);
  ASSERT_TRUE(held.WaitFor(5));
  channel = nullptr;
  EXPECT_EQ(completed, 8);
}

TEST(ChannelTest, AChannelMayBeDestroyedByItsOwnCallback) {
  auto server = StartServer(Echo, Echo);
  auto channel = std::make_shared<Channel>(server->address());
  auto future = channel->Call(kUnary, Payload(std::string("x")), {});
  Promise<Done> destroyed;
  const auto done = destroyed.future();
  future.OnReady([&, last = std::move(channel)](const absl::StatusOr<Payload>&) mutable {
    last = nullptr;
    destroyed.Set(Done());
  });
  EXPECT_TRUE(done.Wait(absl::Now() + absl::Seconds(4)).ok());
}

TEST(ChannelTest, AServerThatStopsWithoutGraceCompletesItsCallers) {
  HeldReplies held;
  auto server = StartServer(held.handler(), held.handler());
  Channel channel(server->address());
  auto stream = channel.OpenStream(kStream, 2);
  std::vector<Future<Payload>> replies;
  replies.push_back(channel.Call(kUnary, Payload(), {}));
  for (int i = 0; i < 5; ++i) replies.push_back(stream->Send(Payload(Megabyte('s'))));
  ASSERT_TRUE(held.WaitFor(2));
  server->Shutdown(0);
  for (auto& reply : replies) {
    const absl::Status status = reply.Wait(Soon()).status();
    EXPECT_TRUE(absl::IsUnavailable(status) || absl::IsCancelled(status)) << status;
  }
  EXPECT_TRUE(stream->broken());
  held.Take(0)(Payload());
  server = nullptr;
  held.Take(1)(Payload());
}

TEST(ChannelTest, ShutdownWithGraceLetsARunningCallFinish) {
  HeldReplies held;
  auto server = StartServer(held.handler(), Echo);
  Channel channel(server->address());
  const auto reply = channel.Call(kUnary, Payload(), {});
  ASSERT_TRUE(held.WaitFor(1));
  std::thread stopper([&] { server->Shutdown(20); });
  held.Take(0)(Payload(std::string("done")));
  EXPECT_EQ(Text(reply.Wait(Soon())), "done");
  stopper.join();
}

TEST(ChannelTest, NobodyListeningIsUnavailableAtOnceUnlessIdempotent) {
  Channel channel("127.0.0.1:1");
  const absl::Time start = absl::Now();
  EXPECT_TRUE(absl::IsUnavailable(channel.Call(kUnary, Payload(), {}).Wait(Soon()).status()));
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
  const absl::Time second = absl::Now();
  const auto status =
      channel.Call(kUnary, Payload(), {.deadline = absl::Milliseconds(600), .idempotent = true})
          .Wait(Soon())
          .status();
  EXPECT_TRUE(absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) << status;
  EXPECT_GT(absl::Now() - second, absl::Milliseconds(100));  // it tried again
}

TEST(ChannelTest, AnIdempotentCallIsRetriedUntilTheServerIsReady) {
  std::atomic<int> attempts{0};
  auto server = StartServer(
      [&](Payload request, Reply reply) {
        if (++attempts < 3) {
          reply(absl::UnavailableError("starting"));
        } else {
          reply(std::move(request));
        }
      },
      Echo);
  Channel channel(server->address());
  EXPECT_TRUE(absl::IsUnavailable(channel.Call(kUnary, Payload(), {}).Wait(Soon()).status()));
  EXPECT_EQ(attempts, 1);
  attempts = 0;
  EXPECT_EQ(
      Text(channel.Call(kUnary, Payload(std::string("x")), {.idempotent = true}).Wait(Soon())),
      "x");
  EXPECT_EQ(attempts, 3);
}

TEST(ChannelTest, AbortEndsACallThatWaitsToBeRetried) {
  std::atomic<int> attempts{0};
  auto server = StartServer(
      [&](Payload, Reply reply) { ++attempts, reply(absl::UnavailableError("never ready")); },
      Echo);
  Channel channel(server->address());
  const auto reply = channel.Call(kUnary, Payload(), {.idempotent = true});
  while (attempts < 2) std::this_thread::yield();
  channel.Abort(absl::AbortedError("enough"));
  EXPECT_EQ(reply.Wait(Soon()).status(), absl::AbortedError("enough"));
}

}  // namespace
}  // namespace tandem::rpc
