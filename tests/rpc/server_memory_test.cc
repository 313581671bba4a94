// The share of memory that a server gives to requests: incomplete messages, whole messages that
// handlers hold, and compressed ones.
#include <atomic>
#include <fstream>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <vector>

#include "rpc/channel.h"
#include "rpc/request_memory.h"
#include "rpc/server.h"

namespace tandem::rpc {
namespace {

constexpr char kService[] = "tandem.EmbeddingService";
const std::string kUnary = std::string("/") + kService + "/Commit";
const std::string kStream = std::string("/") + kService + "/Push";

absl::Time Soon() { return absl::Now() + absl::Seconds(60); }
void Echo(Payload request, Reply reply) { reply(std::move(request)); }

std::unique_ptr<Server> StartServer(Handler unary, Handler stream, ServerOptions options = {}) {
  auto server = std::make_unique<Server>(Credentials(), options);
  server->Handle(kService, "Commit", MethodKind::UNARY, std::move(unary));
  server->Handle(kService, "Push", MethodKind::STREAM, std::move(stream));
  const absl::Status status = server->Start("127.0.0.1:0");
  EXPECT_TRUE(status.ok()) << status;
  return server;
}

// A field of /proc/self/status, in kilobytes.
size_t ProcessStatus(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    size_t value = 0;
    if (word == name + ":" && status >> value) return value;
  }
  return 0;
}

// A client that obeys no limits.
class WildClient {
 public:
  explicit WildClient(const std::string& address,
                      grpc_compression_algorithm compression = GRPC_COMPRESS_NONE) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxSendMessageSize(-1);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetCompressionAlgorithm(compression);
    stub_ = std::make_unique<grpc::GenericStub>(
        grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
  }
  // REQUIRES: `bytes` outlive the call.
  grpc::Status Call(const std::string& bytes) {
    const grpc::Slice slice(bytes.data(), bytes.size(), grpc::Slice::STATIC_SLICE);
    grpc::ByteBuffer request(&slice, 1), reply;
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(Soon()));
    grpc::CompletionQueue queue;
    grpc::Status status;
    auto call = stub_->PrepareUnaryCall(&context, kUnary, request, &queue);
    call->StartCall();
    call->Finish(&reply, &status, this);
    void* tag;
    bool ok;
    queue.Next(&tag, &ok);
    return status;
  }

 private:
  std::unique_ptr<grpc::GenericStub> stub_;
};

TEST(ServerMemoryTest, MessagesOfAnyLengthFillNoMoreMemoryThanTheirShare) {
#ifdef TANDEM_SANITIZED
  GTEST_SKIP() << "sanitizers take memory of their own";
#endif
  auto server = StartServer(Echo, Echo);
  const std::string large(size_t{200} << 20, 'L');
  std::ofstream("/proc/self/clear_refs") << 5;  // forgets the most memory that was in use
  const size_t before = ProcessStatus("VmRSS");
  std::vector<std::thread> threads;
  std::vector<grpc::StatusCode> codes(3);
  for (grpc::StatusCode& code : codes) {
    threads.emplace_back([&] { code = WildClient(server->address()).Call(large).error_code(); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const grpc::StatusCode code : codes) EXPECT_EQ(code, grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_LT(ProcessStatus("VmHWM") - before, (kMaxUnfinishedBytes + (size_t{192} << 20)) >> 10);
  Channel channel(server->address());
  EXPECT_TRUE(channel.Call(kUnary, Payload(std::string("x")), {}).Wait(Soon()).ok())
      << "others are served";
}

// gRPC chooses which call to break off. If it breaks one of ours, the call comes back, as after any
// other break.
TEST(ServerMemoryTest, ACallOfOursThatIsBrokenOffMeanwhileMayComeBack) {
  auto server = StartServer(Echo, Echo);
  const std::string large(size_t{400} << 20, 'L');
  Channel channel(server->address());
  std::atomic<int> num_flooding{2};
  std::vector<std::thread> flood;
  for (int i = 0; i < 2; ++i) {
    flood.emplace_back([&] {
      WildClient(server->address()).Call(large);
      --num_flooding;
    });
  }
  while (num_flooding > 0) {
    const auto stream = channel.OpenStream(kStream, 4);
    absl::Status status;
    while (num_flooding > 0 && status.ok())
      status = stream->Send(Payload(std::string(1 << 16, 's'))).Wait(Soon()).status();
    EXPECT_TRUE(status.ok() || absl::IsUnavailable(status)) << status;
  }
  for (std::thread& thread : flood) thread.join();
}

TEST(ServerMemoryTest, RequestsThatHandlersHoldAreBounded) {
  std::vector<std::pair<Payload, Reply>> held;
  absl::Mutex mutex;
  const Handler hold = [&](Payload request, Reply reply) {
    absl::MutexLock lock(&mutex);
    held.emplace_back(std::move(request), std::move(reply));
  };
  const auto wait_for = [&](size_t count) {
    absl::MutexLock lock(&mutex);
    const auto there = [&] { return held.size() == count; };
    return mutex.AwaitWithTimeout(absl::Condition(&there), absl::Seconds(20));
  };
  auto server = StartServer(hold, hold, {.max_request_bytes = 10'000});
  Channel channel(server->address());
  const auto stream = channel.OpenStream(kStream, 4);
  const auto first = channel.Call(kUnary, Payload(std::string(6'000, 'a')), {});
  ASSERT_TRUE(wait_for(1));
  EXPECT_TRUE(absl::IsResourceExhausted(
      channel.Call(kUnary, Payload(std::string(6'000, 'b')), {}).Wait(Soon()).status()));
  const auto small = stream->Send(Payload(std::string(3'000, 'c')));
  ASSERT_TRUE(wait_for(2)) << "what there is room for is taken";
  {
    absl::MutexLock lock(&mutex);
    for (auto& [request, reply] : held) reply(Payload());
    held.clear();
  }
  EXPECT_TRUE(first.Wait(Soon()).ok() && small.Wait(Soon()).ok());
  channel.Call(kUnary, Payload(std::string(9'000, 'd')), {}).OnReady([](const auto&) {});
  EXPECT_TRUE(wait_for(1)) << "what was released makes room";
  EXPECT_TRUE(absl::IsResourceExhausted(
      stream->Send(Payload(std::string(3'000, 'e'))).Wait(Soon()).status()));
  absl::MutexLock lock(&mutex);
  held.clear();
}

TEST(ServerMemoryTest, CompressedMessagesAreRefused) {
  auto server = StartServer(Echo, Echo);
  const std::string zeros(size_t{8} << 20, '\0');
  EXPECT_EQ(WildClient(server->address(), GRPC_COMPRESS_GZIP).Call(zeros).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
}

}  // namespace
}  // namespace tandem::rpc
