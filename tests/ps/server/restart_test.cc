// Processes that go and come back, message by message. A server restarted from a checkpoint still
// knows the pushes in its rows.
// The server and its peers must reject messages from before the restart.
#include <filesystem>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"
#include "kernels/base/crc32c.h"
#include "ps/server/service.h"
#include "rpc/protocol_version.h"
#include "tests/ps/spec.h"
#include "tests/support/temp_folder.h"

namespace tandem::ps {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kJob = 0xfeed;
using support::TempFolder;

struct ServerOptions {
  uint64_t job_epoch = kJob;
  uint32_t generation = 1;
  int workers = 2;
};

// A server with one trainer and two SGD tables whose rows start at zero.
class Server {
 public:
  explicit Server(const ServerOptions& options)
      : options_(options),
        host_(options.workers),
        service_(host_, options.job_epoch, options.generation, 1) {
    CreateTablesRequest request;
    for (uint32_t number : {1, 2}) {
      *request.add_tables() = MakeTableSpec(number, 1);
      request.mutable_tables()->rbegin()->set_init_stddev(0);
    }
    request.set_num_trainers(1);
    const absl::Status created = Ask(&EmbeddingService::CreateTables, request);
    EXPECT_TRUE(created.ok()) << created;
  }

  // Fills in this server's job and generation, and incarnation 1 unless the request has one.
  template <class Request>
  absl::Status Ask(void (EmbeddingService::*method)(rpc::Payload, rpc::Reply), Request request,
                   std::string* answer = nullptr) {
    RequestHeader* const header = request.mutable_header();
    header->set_protocol_version(rpc::kProtocolVersion);
    if (header->job_epoch() == 0) header->set_job_epoch(options_.job_epoch);
    if (header->generation() == 0) header->set_generation(options_.generation);
    header->set_shard_map_version(1);
    header->mutable_sender()->set_role(TRAINER);
    if (header->sender().incarnation() == 0) header->mutable_sender()->set_incarnation(1);
    absl::Notification done;
    absl::Status status;
    (service_.*method)(rpc::Payload(request.SerializeAsString()),
                       [&](absl::StatusOr<rpc::Payload> reply) {
                         status = reply.status();
                         if (reply.ok() && answer != nullptr)
                           *answer = std::string(reply->Flatten());
                         done.Notify();
                       });
    EXPECT_TRUE(done.WaitForNotificationWithTimeout(absl::Seconds(30)));
    return status;
  }
  absl::Status Push(const PushRequest& request) { return Ask(&EmbeddingService::Push, request); }
  absl::Status Commit(uint64_t step, bool skip = false, uint32_t incarnation = 1) {
    CommitRequest request;
    request.mutable_header()->mutable_sender()->set_incarnation(incarnation);
    request.set_step(step);
    request.set_gradient_scale(1);
    request.set_skip(skip);
    for (uint32_t table : {1, 2}) {
      request.add_rates()->set_table(table);
      request.mutable_rates()->rbegin()->set_learning_rate(1);
    }
    return Ask(&EmbeddingService::Commit, request);
  }
  std::vector<std::string> Save(uint64_t step, const TempFolder& folder) {
    SaveRequest request;
    request.set_step(step);
    request.set_folder(folder.path());
    std::string answer;
    const absl::Status saved = Ask(&EmbeddingService::Save, request, &answer);
    EXPECT_TRUE(saved.ok()) << saved;
    SaveReply reply;
    EXPECT_TRUE(reply.ParseFromString(answer));
    std::vector<std::string> names;
    for (const SavedFile& file : reply.files()) names.push_back(file.name());
    return names;
  }
  absl::Status Load(uint64_t step, const TempFolder& folder,
                    const std::vector<std::string>& files) {
    LoadRequest request;
    request.set_step(step);
    request.set_folder(folder.path());
    request.mutable_files()->Add(files.begin(), files.end());
    request.add_shards()->set_count(1024);
    return Ask(&EmbeddingService::Load, request);
  }
  std::string Hash() {
    std::string answer;
    EXPECT_TRUE(Ask(&EmbeddingService::Hash, HashRequest(), &answer).ok());
    return answer;
  }
  float Weight(uint64_t id) {
    float row = 0;
    absl::Notification done;
    host_.Pull(std::nullopt, 0, false, {{1, 1, &id, &row}}, [&](absl::Status) { done.Notify(); });
    EXPECT_TRUE(done.WaitForNotificationWithTimeout(absl::Seconds(20)));
    return row;
  }

 private:
  const ServerOptions options_;
  TableHost host_;
  EmbeddingService service_;
};

// A push with a gradient of 1 for each id of table 1.
PushRequest MakePush(uint64_t sequence, uint64_t step, const std::vector<uint64_t>& ids) {
  PushRequest request;
  request.set_sequence(sequence);
  request.set_step(step);
  Segment* const segment = request.add_segments();
  segment->set_table(1);
  segment->set_count(ids.size());
  const std::vector<float> gradients(ids.size(), 1);
  request.set_ids(ids.data(), ids.size() * sizeof(uint64_t));
  request.set_gradients(gradients.data(), gradients.size() * sizeof(float));
  request.set_payload_crc32c(Crc32c(Crc32c(0, request.ids().data(), request.ids().size()),
                                    gradients.data(), gradients.size() * sizeof(float)));
  return request;
}

void ExpectRefused(const absl::Status& status, const std::string& words) {
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_NE(status.message().find(words), absl::string_view::npos) << status;
}

class RestartTest : public testing::Test {
 protected:
  // Runs three steps of several pushes each and skips the second step. Another push waits for step
  // 4.
  void Begin(Server& server) {
    uint64_t sequence = 0;
    for (uint64_t step = 1; step <= 3; ++step) {
      for (uint64_t part = 0; part < 5; ++part) {
        pushes_.push_back(MakePush(++sequence, step, MakeIds(step * 10 + part, 40)));
        ASSERT_TRUE(server.Push(pushes_.back()).ok());
      }
      ASSERT_TRUE(server.Commit(step, step == 2).ok());
    }
    pending_ = MakePush(++sequence, 4, {7, 8, 9});
    ASSERT_TRUE(server.Push(pending_).ok());
  }

  const TempFolder folder_;
  std::vector<PushRequest> pushes_;
  PushRequest pending_;
};

// In ps-lite a server that joins again has lost its rows, and the messages sent to it with them.
TEST_F(RestartTest, ServerFromACheckpointKnowsThePushesThatItsRowsHold) {
  for (int workers : {1, 2, 3}) {
    Server before({.workers = 2});
    Begin(before);
    const std::string hash = before.Hash();
    const auto files = before.Save(3, folder_);
    Server after({.generation = 2, .workers = workers});
    ASSERT_TRUE(after.Load(3, folder_, files).ok());
    EXPECT_EQ(after.Hash(), hash);
    for (const PushRequest& push : pushes_) {
      const absl::Status again = after.Push(push);
      EXPECT_TRUE(again.ok()) << "push " << push.sequence() << ": " << again;
    }
    EXPECT_EQ(after.Hash(), hash);
    // The pending gradients are in no row. So the push counts as new, once.
    const float weight = after.Weight(7);
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(after.Push(pending_).ok());
    ASSERT_TRUE(after.Commit(4).ok());
    EXPECT_EQ(after.Weight(7), weight - 1);
    ASSERT_TRUE(before.Commit(4).ok());
    EXPECT_EQ(after.Hash(), before.Hash());
    pushes_.clear();
    for (const std::string& file : files) fs::remove(folder_ / file);
  }
}

TEST_F(RestartTest, WindowsOfSeveralServersComeTogetherOnOne) {
  // Imitates a move of all shards: each half of a push's ids went to another server.
  Server low({.workers = 1}), high({.workers = 1});
  std::vector<uint64_t> ids[2], all = MakeIds(3, 100);
  for (uint64_t id : all) ids[rpc::VirtualShard(1, id) < 512 ? 0 : 1].push_back(id);
  std::vector<std::string> files;
  for (Server* server : {&low, &high}) {
    ASSERT_TRUE(server->Push(MakePush(1, 1, ids[server == &low ? 0 : 1])).ok());
    ASSERT_TRUE(server->Commit(1).ok());
    for (const std::string& name : server->Save(1, folder_)) files.push_back(name);
  }
  Server both({.generation = 2});
  ASSERT_TRUE(both.Load(1, folder_, files).ok());
  const std::string hash = both.Hash();
  EXPECT_TRUE(both.Push(MakePush(1, 1, all)).ok());
  EXPECT_EQ(both.Hash(), hash);
  EXPECT_EQ(both.Weight(all[0]), -1);
}

TEST_F(RestartTest, NextJobCountsAnewFromTheSameCheckpoint) {
  Server before({});
  Begin(before);
  const auto files = before.Save(3, folder_);
  Server next({.job_epoch = kJob + 1});
  ASSERT_TRUE(next.Load(3, folder_, files).ok());
  const float weight = next.Weight(7);
  ASSERT_TRUE(next.Push(MakePush(1, 4, {7})).ok());
  ASSERT_TRUE(next.Commit(4).ok());
  EXPECT_EQ(next.Weight(7), weight - 1) << "sequence 1 of this job is not that of the one before";
}

TEST_F(RestartTest, StepsThatChangedNoRowAreRememberedToo) {
  Server before({});
  ASSERT_TRUE(before.Push(MakePush(1, 1, {7})).ok());
  ASSERT_TRUE(before.Commit(1, /*skip=*/true).ok());
  const auto files = before.Save(1, folder_);
  ASSERT_EQ(files.size(), 1u) << "a file of windows, without rows";
  Server after({.generation = 2});
  ASSERT_TRUE(after.Load(1, folder_, files).ok());
  EXPECT_TRUE(after.Push(MakePush(1, 1, {7})).ok());
  ExpectRefused(after.Push(MakePush(2, 1, {7})), "gradients would be lost");
}

TEST_F(RestartTest, MessagesOfAnOlderGenerationAreRefusedAndChangeNothing) {
  Server server({.generation = 2});
  PushRequest late = MakePush(1, 1, {7});
  late.mutable_header()->set_generation(1);
  ExpectRefused(server.Push(late),
                "generation 1, this server's is 2: the generation changed, rejoin");
  ASSERT_TRUE(server.Push(MakePush(1, 1, {8})).ok()) << "its sequence was not taken";
  ASSERT_TRUE(server.Commit(1).ok());
  EXPECT_EQ(server.Weight(7), 0);
  EXPECT_EQ(server.Weight(8), -1);
}

TEST_F(RestartTest, TrainerComesBackBetweenStepsAndItsOldPushesDoNot) {
  Server server({});
  ASSERT_TRUE(server.Push(MakePush(1, 1, {7})).ok());
  ASSERT_TRUE(server.Commit(1).ok());
  PushRequest restarted = MakePush(1, 2, {7}), late = MakePush(2, 2, {7});
  restarted.mutable_header()->mutable_sender()->set_incarnation(2);
  ASSERT_TRUE(server.Push(restarted).ok())
      << "its first push, though the process before it had a first one too";
  ExpectRefused(server.Push(late),
                "incarnation 1 of trainer 0, which was restarted: its incarnation is 2");
  ExpectRefused(server.Commit(2), "its incarnation is 2");
  ASSERT_TRUE(server.Commit(2, false, 2).ok());
  EXPECT_EQ(server.Weight(7), -2);
}

TEST_F(RestartTest, TrainerThatComesBackWithinAStepMustReload) {
  Server server({});
  ASSERT_TRUE(server.Push(MakePush(1, 1, {7})).ok());
  PushRequest restarted = MakePush(1, 1, {7});
  restarted.mutable_header()->mutable_sender()->set_incarnation(2);
  ExpectRefused(server.Push(restarted),
                "incarnation 1 was in the middle of step 1: reload the last checkpoint");
  ExpectRefused(server.Commit(1, false, 2), "reload the last checkpoint");
  ASSERT_TRUE(server.Commit(1).ok());
  EXPECT_EQ(server.Weight(7), -1);
}

TEST_F(RestartTest, IncarnationIsSavedWithItsWindows) {
  Server before({});
  PushRequest push = MakePush(1, 1, {7});
  push.mutable_header()->mutable_sender()->set_incarnation(3);
  ASSERT_TRUE(before.Push(push).ok());
  ASSERT_TRUE(before.Commit(1, false, 3).ok());
  const auto files = before.Save(1, folder_);
  Server after({.generation = 2});
  ASSERT_TRUE(after.Load(1, folder_, files).ok());
  ExpectRefused(after.Push(MakePush(2, 2, {7})),
                "incarnation 1 of trainer 0, which was restarted: its incarnation is 3");
  EXPECT_TRUE(after.Push(push).ok());
}

}  // namespace
}  // namespace tandem::ps
