// The client against a scripted server, which delays answers or gives answers that no correct
// server would.
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/check.h"
#include "rpc/protocol_version.h"
#include "tests/ps/cluster.h"
#include "tests/ps/spec.h"

namespace tandem::ps {
namespace {

constexpr uint32_t kDim = 2;

absl::Time Deadline() { return absl::Now() + absl::Seconds(20); }

// Answers every message with an empty one, unless its method has a script. Records the messages in
// order.
class ScriptedServer {
 public:
  using Script = std::function<void(rpc::Payload, rpc::Reply)>;

  explicit ScriptedServer(std::map<std::string, Script> scripts = {})
      : scripts_(std::move(scripts)) {
    Serve("CreateTables", rpc::MethodKind::UNARY);
    for (const char* method :
         {"Pull", "Push", "PullPooled", "PushPooled", "GradientNorm", "Commit"}) {
      Serve(method, rpc::MethodKind::STREAM);
    }
    TANDEM_CHECK(server_.Start("127.0.0.1:0").ok());
  }

  std::unique_ptr<RemoteClient> MakeClient() {
    RequestHeader header;
    header.set_protocol_version(rpc::kProtocolVersion);
    header.set_job_epoch(kTestJobEpoch);
    RemoteClientOptions options{.timeout = absl::Seconds(20)};
    auto client = std::make_unique<RemoteClient>(std::vector<std::string>{server_.address()},
                                                 Router::RoundRobin(1), header, 1, options);
    EXPECT_TRUE(client->CreateTables({MakeTableSpec(1, kDim)}, absl::Seconds(20)).ok());
    return client;
  }
  // Returns the methods of all messages once `count` have come.
  std::vector<std::string> Await(size_t count) {
    absl::MutexLock lock(&mutex_);
    const auto enough = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return messages_.size() >= count; };
    EXPECT_TRUE(mutex_.AwaitWithDeadline(absl::Condition(&enough), Deadline()));
    return messages_;
  }

 private:
  void Serve(const std::string& method, rpc::MethodKind kind) {
    server_.Handle("tandem.EmbeddingService", method, kind,
                   [this, method](rpc::Payload payload, rpc::Reply reply) {
                     {
                       absl::MutexLock lock(&mutex_);
                       if (method != "CreateTables") messages_.push_back(method);
                     }
                     const auto script = scripts_.find(method);
                     if (script == scripts_.end())
                       reply(rpc::Payload(std::string()));
                     else
                       script->second(std::move(payload), std::move(reply));
                   });
  }

  const std::map<std::string, Script> scripts_;
  absl::Mutex mutex_;
  std::vector<std::string> messages_ ABSL_GUARDED_BY(mutex_);
  rpc::Server server_;  // last, so that no handler outlives what it uses
};

// Pushes, pooled pushes and commits have streams of their own, and may overtake each other there.
TEST(ScriptedServerTest, ACommitIsNotSentWhileAPushIsUnanswered) {
  absl::Mutex mutex;
  rpc::Reply held;
  ScriptedServer server({{"PushPooled", [&](rpc::Payload, rpc::Reply reply) {
                            absl::MutexLock lock(&mutex);
                            held = std::move(reply);
                          }}});
  const auto client = server.MakeClient();
  const std::vector<uint64_t> ids = {7}, offsets = {0, 1};
  const std::vector<float> gradient(kDim, 1);
  const auto pooled =
      client->PushPooled(1, 0, {1, Pooling::SUM, ids, offsets}, kDim, gradient.data());
  const auto pushed = client->Push(1, 0, {{1, ids, gradient.data()}});
  const auto committed = client->Commit({1, {{1, 1.0f}}, 1, false});
  EXPECT_TRUE(pushed.Wait(Deadline()).ok());
  for (const std::string& message : server.Await(2))
    EXPECT_TRUE(message == "PushPooled" || message == "Push") << message;
  EXPECT_FALSE(committed.ready());
  {
    absl::MutexLock lock(&mutex);
    const auto is_held = [&] { return held != nullptr; };
    ASSERT_TRUE(mutex.AwaitWithDeadline(absl::Condition(&is_held), Deadline()));
    held(rpc::Payload(std::string()));
  }
  EXPECT_TRUE(committed.Wait(Deadline()).ok());
  EXPECT_TRUE(pooled.Wait(Deadline()).ok());
  EXPECT_EQ(server.Await(3).back(), "Commit");
}

// Version 0 in an answer says that the caller's row is current. The server must send a row that the
// caller lacks.
TEST(ScriptedServerTest, AReplyThatLeavesOutARowThatTheTrainerDoesNotHaveIsRefused) {
  const auto answer_nothing = [](rpc::Payload, const rpc::Reply& reply) {
    PullReply answer;
    answer.set_versions(std::string(2 * sizeof(uint32_t), '\0'));
    reply(rpc::Payload(answer.SerializeAsString()));
  };
  ScriptedServer server({{"Pull", answer_nothing}});
  const auto client = server.MakeClient();
  const std::vector<uint64_t> ids = {7, 8};
  std::vector<float> rows = {1, 2, 3, 4};
  const std::vector<float> before = rows;
  std::vector<uint32_t> versions = {5, 0};
  const absl::Status pulled =
      client->Pull(1, true, {{1, ids, rows.data(), versions.data()}}).Wait(Deadline()).status();
  EXPECT_TRUE(absl::IsInternal(pulled)) << pulled;
  EXPECT_NE(pulled.message().find(
                "ps-0: answered 0 bytes of rows, expected 0, and left out rows that nobody has"),
            absl::string_view::npos)
      << pulled;
  EXPECT_EQ(rows, before);

  versions = {5, 6};
  EXPECT_TRUE(client->Pull(1, true, {{1, ids, rows.data(), versions.data()}}).Wait(Deadline()).ok())
      << "both rows are here";
  EXPECT_EQ(versions, (std::vector<uint32_t>{0, 0}));
}

}  // namespace
}  // namespace tandem::ps
