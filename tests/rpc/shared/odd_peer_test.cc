// Streams through shared memory with a peer that breaks the protocol, says nothing, or is killed.
#include <csignal>
#include <cstring>
#include <random>
#include <sys/wait.h>
#include <unistd.h>

#include "rpc/shared/server.h"
#include "tests/rpc/shared/stream_harness.h"

namespace tandem::rpc {
namespace {

// A client that knows the protocol and breaks it.
class OddClientTest : public testing::Test {
 protected:
  OddClientTest() : server_(StartServer(held_.handler(), kSmallArena)) {}

  bool Connect(const std::string& hello) {
    auto socket = LocalSocket::Connect(SharedSocketName(server_->address()));
    if (!socket.ok()) return false;
    socket_ = *std::move(socket);
    return socket_->Send(hello.data(), hello.size());
  }
  // Returns the descriptor that came with the welcome, or -1.
  int Welcome() {
    int fd = -1;
    std::string packet;
    Eventually([&] {
      return socket_->Receive(&packet, kMaxPacketBytes, &fd) != LocalSocket::Received::NOTHING;
    });
    return fd;
  }
  static std::string Hello(const SharedHello& header, const std::string& method) {
    return std::string(reinterpret_cast<const char*>(&header), sizeof header) + method;
  }
  bool ServerHungUp() {
    std::string packet;
    return Eventually([&] {
      return socket_->Receive(&packet, kMaxPacketBytes) == LocalSocket::Received::CLOSED;
    });
  }
  void ExpectOthersAreServed() {
    SharedStreams streams;
    auto stream = Open(streams, server_->address());
    const size_t count = held_.count();
    const auto reply = stream->Send(Payload(std::string("fine")));
    ASSERT_TRUE(held_.WaitFor(count + 1));
    held_.Take(count)(Payload(std::string("served")));
    EXPECT_EQ(Text(reply), "served");
  }

  HeldReplies held_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<LocalSocket> socket_;
};

TEST_F(OddClientTest, HellosThatAreNoneAreRefused) {
  SharedHello other_version;
  other_version.version = 99;
  for (const std::string& hello : {std::string("x"), Hello({}, ""), Hello({}, "/nope"),
                                   Hello(other_version, kMethod), std::string(900, 'h')}) {
    ASSERT_TRUE(Connect(hello));
    EXPECT_EQ(Welcome(), -1);
    EXPECT_TRUE(ServerHungUp());
  }
  ASSERT_TRUE(Connect(Hello({}, kMethod)));
  EXPECT_GE(Welcome(), 0);
  ExpectOthersAreServed();
}

TEST_F(OddClientTest, AStrangerIsRefusedBeforeItsMethodIsReadAndTheJobsOwnIsServed) {
  const Credentials job(*Secret::Draw()), other(*Secret::Draw());
  Server server(job);
  server.Handle(kService, "Push", MethodKind::STREAM, Echo);
  ASSERT_TRUE(server.Start("127.0.0.1:0").ok());
  ASSERT_TRUE(server.ServeSharedMemory({kSmallArena}).ok());
  for (const Credentials& shown : {Credentials(), other}) {
    for (const std::string& method : {kMethod, std::string("/nope")}) {
      SharedHello hello;
      std::memcpy(hello.shown, shown.shown().data(), shown.shown().size());
      const std::string packet = Hello(hello, method);
      const auto socket = *LocalSocket::Connect(SharedSocketName(server.address()));
      ASSERT_TRUE(socket->Send(packet.data(), packet.size()));
      std::string answer;
      int fd = -1;
      ASSERT_TRUE(Eventually([&] {
        return socket->Receive(&answer, kMaxPacketBytes, &fd) == LocalSocket::Received::PACKET;
      }));
      SharedWelcome welcome;
      ASSERT_GE(answer.size(), sizeof welcome);
      std::memcpy(&welcome, answer.data(), sizeof welcome);
      EXPECT_EQ(fd, -1);
      EXPECT_EQ(welcome.arena_bytes, 0u);
      EXPECT_EQ(welcome.code, static_cast<uint64_t>(absl::StatusCode::kUnauthenticated));
      EXPECT_NE(answer.find("--secret-file"), std::string::npos) << answer;
    }
    SharedStreams streams(shown);
    EXPECT_NE(Text(Open(streams, server.address())->Send(Payload(std::string("x")))), "x");
  }
  SharedStreams streams(job);
  EXPECT_EQ(Text(Open(streams, server.address())->Send(Payload(std::string("x")))), "x");
}

TEST_F(OddClientTest, AClientThatSaysNothingIsNotWaitedForForEver) {
  Server server;
  server.Handle(kService, "Push", MethodKind::STREAM, Echo);
  ASSERT_TRUE(server.Start("127.0.0.1:0").ok());
  ASSERT_TRUE(
      server
          .ServeSharedMemory({.arena_bytes = kSmallArena, .hello_timeout = absl::Milliseconds(500)})
          .ok());
  auto socket = LocalSocket::Connect(SharedSocketName(server.address()));
  ASSERT_TRUE(socket.ok()) << socket.status();
  socket_ = *std::move(socket);
  SharedStreams streams;
  auto stream = Open(streams, server.address());
  EXPECT_EQ(Text(stream->Send(Payload(std::string("x")))), "x");
  EXPECT_TRUE(ServerHungUp());
  EXPECT_EQ(Text(stream->Send(Payload(std::string("who speaks stays")))), "who speaks stays");
}

TEST_F(OddClientTest, WildNumbersInTheSegmentEndThatStreamAlone) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 30; ++round) {
    ASSERT_TRUE(Connect(Hello({}, kMethod)));
    const int fd = Welcome();
    ASSERT_GE(fd, 0);
    const size_t num_bytes = SharedLink::SegmentBytes(kSmallArena);
    const auto memory = *SharedMemory::Adopt(fd, num_bytes);
    auto* words = reinterpret_cast<uint64_t*>(memory->data());
    const size_t control_words = (num_bytes - 2 * kSmallArena) / sizeof(uint64_t);
    for (size_t i = 0; i < control_words; ++i)
      words[i] = round % 2 == 0 ? random() % 300 : random();
    socket_->Send("r", 1);
    EXPECT_TRUE(ServerHungUp()) << round;
  }
  ExpectOthersAreServed();
}

TEST_F(OddClientTest, TheSegmentCannotBeCutShortUnderTheServer) {
  ASSERT_TRUE(Connect(Hello({}, kMethod)));
  const int fd = Welcome();
  ASSERT_GE(fd, 0);
  EXPECT_NE(ftruncate(fd, 0), 0);
  close(fd);
}

// A client process that is killed while it sends.
class KilledPeerTest : public testing::Test {
 protected:
  // Runs `body` in a child, which must die by a kill.
  static pid_t Fork(const std::function<void()>& body) {
    const pid_t child = fork();
    if (child == 0) {
      body();
      pause();
      _exit(0);
    }
    return child;
  }
  static void Kill(pid_t child) {
    kill(child, SIGKILL);
    EXPECT_EQ(waitpid(child, nullptr, 0), child);
  }
};

TEST_F(KilledPeerTest, AServerKilledInTheMiddleEndsItsClientsStreams) {
  const std::string address = "killed-" + std::to_string(getpid());
  const pid_t child = Fork([&] {
    static std::vector<Reply> kept;
    const auto handler = std::make_shared<const Handler>(
        [](Payload, Reply reply) { kept.push_back(std::move(reply)); });
    static auto server = SharedServer::Start(address, {}, {{kMethod, handler}}, {});
    if (!server.ok()) _exit(1);
  });
  SharedStreams streams;
  absl::StatusOr<std::unique_ptr<ClientStream>> stream = absl::UnknownError("not yet");
  ASSERT_TRUE(Eventually([&] { return (stream = streams.Open(address, kMethod)).ok(); }))
      << stream.status();
  std::vector<Future<Payload>> replies;
  for (int i = 0; i < 8; ++i) replies.push_back((*stream)->Send(Payload(Bytes(1 << 20, 'x'))));
  absl::SleepFor(absl::Milliseconds(20));
  Kill(child);
  for (const auto& reply : replies)
    EXPECT_TRUE(absl::IsUnavailable(reply.Wait(Soon()).status())) << reply.Wait(Soon()).status();
  EXPECT_FALSE(streams.Open(address, kMethod).ok());
}

TEST_F(KilledPeerTest, AClientKilledInTheMiddleLeavesNothingAtTheServer) {
  HeldReplies held;
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const pid_t child = Fork([&] {
    std::string address;
    for (char c = 0; read(pipe_ends[0], &c, 1) == 1 && c != '\n';) address.push_back(c);
    auto* streams = new SharedStreams();
    auto* stream = streams->Open(address, kMethod, 8)->release();
    for (int i = 0; i < 8; ++i) stream->Send(Payload(Bytes(1 << 20, 'x')));
  });
  auto server = StartServer(held.handler(), size_t{4} << 20);
  const std::string address = server->address() + "\n";
  ASSERT_EQ(write(pipe_ends[1], address.data(), address.size()),
            static_cast<ssize_t>(address.size()));
  ASSERT_TRUE(held.WaitFor(4));
  Kill(child);
  EXPECT_GT(NumMapped(), 0);
  EXPECT_TRUE(held.Request(0) == Bytes(1 << 20, 'x'));
  size_t num_answered = 0;
  const auto nothing_is_left = [&] {
    // Messages that the child had posted may still come.
    for (; num_answered < held.count(); ++num_answered)
      held.Take(num_answered)(Payload(std::string("late")));
    held.DropRequests();
    return NumMapped() == 0;
  };
  EXPECT_TRUE(Eventually(nothing_is_left)) << NumMapped();
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

}  // namespace
}  // namespace tandem::rpc
