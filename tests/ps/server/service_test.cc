// The service's bytes, without a network: accepted and refused messages. Any protobuf library can
// read the answers.
#include "ps/server/service.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"
#include "kernels/base/crc32c.h"
#include "rpc/protocol_version.h"
#include "tests/ps/spec.h"

namespace tandem::ps {
namespace {

constexpr uint64_t kJob = 0xfeed;
constexpr uint32_t kGeneration = 4, kMapVersion = 3;

using HandlerMethod = void (EmbeddingService::*)(rpc::Payload, rpc::Reply);

class ServiceTest : public testing::Test {
 protected:
  ServiceTest() : host_(2), service_(host_, kJob, kGeneration, kMapVersion) {
    CreateTablesRequest request;
    *request.mutable_header() = Header();
    *request.add_tables() = MakeTableSpec(1, 3);
    request.set_num_trainers(1);
    EXPECT_TRUE(Ask(&EmbeddingService::CreateTables, request).ok());
  }
  static RequestHeader Header() {
    RequestHeader header;
    header.set_protocol_version(rpc::kProtocolVersion);
    header.set_job_epoch(kJob);
    header.set_generation(kGeneration);
    header.set_shard_map_version(kMapVersion);
    header.mutable_sender()->set_role(TRAINER);
    header.mutable_sender()->set_incarnation(1);
    return header;
  }
  static PullRequest Pull(const std::vector<uint64_t>& ids) {
    PullRequest request;
    *request.mutable_header() = Header();
    request.set_create(true);
    Segment* segment = request.add_segments();
    segment->set_table(1);
    segment->set_count(ids.size());
    request.set_ids(ids.data(), ids.size() * 8);
    return request;
  }
  static PushRequest Push(const std::vector<uint64_t>& ids, const std::vector<float>& gradients) {
    PushRequest request;
    *request.mutable_header() = Header();
    request.set_sequence(1);
    request.set_step(1);
    Segment* segment = request.add_segments();
    segment->set_table(1);
    segment->set_count(ids.size());
    request.set_ids(ids.data(), ids.size() * 8);
    request.set_gradients(gradients.data(), gradients.size() * 4);
    Sign(request);
    return request;
  }
  static void Sign(PushRequest& request) {
    request.set_payload_crc32c(Crc32c(Crc32c(0, request.ids().data(), request.ids().size()),
                                      request.gradients().data(), request.gradients().size()));
  }
  static std::string Encoded(WireFormat format, const std::vector<float>& rows) {
    const size_t bytes = WireBytes(format, 3);
    std::string wire(rows.size() / 3 * bytes, 0);
    for (size_t i = 0; i < rows.size() / 3; ++i)
      EncodeRow(format, rows.data() + 3 * i, 3, wire.data() + i * bytes);
    return wire;
  }
  template <class Request>
  absl::StatusOr<std::string> Ask(void (EmbeddingService::*method)(rpc::Payload, rpc::Reply),
                                  const Request& request) {
    return AskBytes(method, request.SerializeAsString());
  }
  absl::StatusOr<std::string> AskBytes(void (EmbeddingService::*method)(rpc::Payload, rpc::Reply),
                                       std::string bytes) {
    return AskPayload(method, rpc::Payload(std::move(bytes)));
  }
  absl::StatusOr<std::string> AskPayload(void (EmbeddingService::*method)(rpc::Payload, rpc::Reply),
                                         rpc::Payload request) {
    absl::Notification done;
    absl::StatusOr<rpc::Payload> answer = absl::UnknownError("");
    (service_.*method)(std::move(request), [&](absl::StatusOr<rpc::Payload> reply) {
      answer = std::move(reply);
      done.Notify();
    });
    EXPECT_TRUE(done.WaitForNotificationWithTimeout(absl::Seconds(20)));
    if (!answer.ok()) return answer.status();
    return std::string(answer->Flatten());
  }
  template <class Request>
  void ExpectRefused(void (EmbeddingService::*method)(rpc::Payload, rpc::Reply),
                     const Request& request, absl::StatusCode code, const char* word) {
    const absl::Status status = Ask(method, request).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_NE(status.message().find(word), absl::string_view::npos) << status;
  }

  TableHost host_;
  EmbeddingService service_;
};

TEST_F(ServiceTest, CheckpointsAreSavedAndLoadedBelowTheServersOwnFoldersAlone) {
  service_.RestrictFolders({.save_below = {"/job/out"}, .load_below = {"/job/out"}});
  SaveRequest save;
  *save.mutable_header() = Header();
  LoadRequest load;
  *load.mutable_header() = Header();
  for (const char* outside : {"/tmp", "/job/out/../elsewhere", "relative"}) {
    save.set_folder(outside);
    ExpectRefused(&EmbeddingService::Save, save, absl::StatusCode::kInvalidArgument,
                  "below /job/out alone");
    load.set_folder(outside);
    ExpectRefused(&EmbeddingService::Load, load, absl::StatusCode::kInvalidArgument,
                  "below /job/out alone");
  }
  save.set_folder("/job/out/checkpoints");  // there is none: it is tried
  save.set_step(0);
  EXPECT_EQ(Ask(&EmbeddingService::Save, save).status().message().find("alone"),
            absl::string_view::npos);
}

TEST_F(ServiceTest, GeneratedCodeReadsThePullReply) {
  const auto bytes = Ask(&EmbeddingService::Pull, Pull({5, 6}));
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  PullReply reply;
  ASSERT_TRUE(reply.ParseFromString(*bytes));
  EXPECT_EQ(reply.shard_map_version(), 3u);
  std::vector<float> expected(6);
  const std::vector<uint64_t> ids = {5, 6};
  absl::Notification done;
  host_.Pull(std::nullopt, 0, false, {{1, 2, ids.data(), expected.data()}},
             [&](absl::Status) { done.Notify(); });
  EXPECT_TRUE(done.WaitForNotificationWithTimeout(absl::Seconds(20)));
  EXPECT_EQ(reply.rows(), std::string(reinterpret_cast<const char*>(expected.data()), 24));
}

TEST_F(ServiceTest, PushCommitHashRoundTrip) {
  ASSERT_TRUE(Ask(&EmbeddingService::Push, Push({5}, {1, 2, 2})).ok());
  GradientNormRequest norm;
  *norm.mutable_header() = Header();
  norm.set_step(1);
  GradientNormReply norm_reply;
  ASSERT_TRUE(norm_reply.ParseFromString(*Ask(&EmbeddingService::GradientNorm, norm)));
  EXPECT_EQ(norm_reply.squared_norm_high(), 9u);
  EXPECT_EQ(norm_reply.squared_norm_low(), 0u);
  CommitRequest commit;
  *commit.mutable_header() = Header();
  commit.set_step(1);
  commit.set_gradient_scale(1);
  commit.add_rates()->set_table(1);
  ASSERT_TRUE(Ask(&EmbeddingService::Commit, commit).ok());
  HashRequest hash;
  *hash.mutable_header() = Header();
  HashReply hash_reply;
  ASSERT_TRUE(hash_reply.ParseFromString(*Ask(&EmbeddingService::Hash, hash)));
  EXPECT_EQ(hash_reply.num_rows(), 1u);
  EXPECT_NE(hash_reply.hash_low(), 0u);
}

TEST_F(ServiceTest, RefusesAnotherProtocolOrJob) {
  PullRequest pull = Pull({5});
  pull.mutable_header()->set_protocol_version(1);
  ExpectRefused(&EmbeddingService::Pull, pull, absl::StatusCode::kFailedPrecondition,
                "protocol version 1, this server speaks 2");
  pull = Pull({5});
  pull.mutable_header()->set_job_epoch(1);
  ExpectRefused(&EmbeddingService::Pull, pull, absl::StatusCode::kFailedPrecondition, "job epoch");
  for (uint32_t generation : {kGeneration - 1, kGeneration + 1}) {
    PushRequest push = Push({5}, {1, 2, 3});
    push.mutable_header()->set_generation(generation);
    ExpectRefused(&EmbeddingService::Push, push, absl::StatusCode::kFailedPrecondition,
                  "the generation changed, rejoin");
  }
  PushRequest push = Push({5}, {1, 2, 3});
  push.mutable_header()->Clear();
  ExpectRefused(&EmbeddingService::Push, push, absl::StatusCode::kFailedPrecondition,
                "protocol version 0");
  ExpectRefused(&EmbeddingService::Hash, HashRequest(), absl::StatusCode::kFailedPrecondition,
                "protocol version");
  ExpectRefused(&EmbeddingService::Commit, CommitRequest(), absl::StatusCode::kFailedPrecondition,
                "protocol version");
}

TEST_F(ServiceTest, RefusesAHeaderThatIsNotTheFirstFieldOrComesTwice) {
  const std::string header = [] {
    HashRequest request;
    *request.mutable_header() = Header();
    return request.SerializeAsString();
  }();
  const auto expect_refused = [this](HandlerMethod method, std::string bytes, const char* word) {
    const absl::Status status = AskBytes(method, std::move(bytes)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_NE(status.message().find(word), absl::string_view::npos) << status;
  };
  const auto expect_all = [&](HandlerMethod method, const std::string& message) {
    ASSERT_EQ(message.substr(0, header.size()), header);
    const std::string rest = message.substr(header.size());
    expect_refused(method, rest + header, "must be the first field");
    expect_refused(method, rest, "must be the first field");
    expect_refused(method, message + header, "comes twice");
    expect_refused(method, header + message, "comes twice");
  };
  CommitRequest commit;
  *commit.mutable_header() = Header();
  commit.set_step(1);
  expect_all(&EmbeddingService::Pull, Pull({5}).SerializeAsString());
  expect_all(&EmbeddingService::Push, Push({5}, {1, 2, 3}).SerializeAsString());
  expect_all(&EmbeddingService::Commit, commit.SerializeAsString());
  PullPooledRequest pooled;
  *pooled.mutable_header() = Header();
  pooled.set_create(true);
  expect_all(&EmbeddingService::PullPooled, pooled.SerializeAsString());
}

TEST_F(ServiceTest, RefusesSendersOfAnotherShardMap) {
  for (uint32_t version : {0u, kMapVersion - 1, 99u}) {
    PushRequest push = Push({5}, {1, 2, 3});
    push.mutable_header()->set_shard_map_version(version);
    ExpectRefused(&EmbeddingService::Push, push, absl::StatusCode::kFailedPrecondition,
                  "not the owner, map version 3");
    PullRequest pull = Pull({5});
    pull.mutable_header()->set_shard_map_version(version);
    ExpectRefused(&EmbeddingService::Pull, pull, absl::StatusCode::kFailedPrecondition,
                  "not the owner, map version 3");
  }
}

TEST_F(ServiceTest, OnlyTrainersMakeCallsThatChangeRows) {
  const auto expect_denied = [this](HandlerMethod method, auto request) {
    *request.mutable_header() = Header();
    for (const Role role : {ROLE_UNSPECIFIED, MASTER, PS, WORKER}) {
      request.mutable_header()->mutable_sender()->set_role(role);
      ExpectRefused(method, request, absl::StatusCode::kPermissionDenied, "only trainers");
    }
  };
  expect_denied(&EmbeddingService::CreateTables, CreateTablesRequest());
  expect_denied(&EmbeddingService::Push, Push({5}, {1, 2, 3}));
  expect_denied(&EmbeddingService::PushPooled, PushPooledRequest());
  expect_denied(&EmbeddingService::GradientNorm, GradientNormRequest());
  expect_denied(&EmbeddingService::Commit, CommitRequest());
  expect_denied(&EmbeddingService::Assign, AssignRequest());
  expect_denied(&EmbeddingService::Save, SaveRequest());
  expect_denied(&EmbeddingService::Load, LoadRequest());
  PullRequest pull = Pull({5});
  pull.mutable_header()->mutable_sender()->set_role(PS);
  EXPECT_TRUE(Ask(&EmbeddingService::Pull, pull).ok()) << "anybody of the job may look";
}

// Thirty million empty segments made a server grow by a gigabyte and a half.
TEST_F(ServiceTest, RefusesEmptySegmentsBeforeItMakesObjectsOfThem) {
  const std::string segments = [] {
    std::string bytes;
    for (size_t i = 0; i < 3'000'000; ++i) bytes.append("\x22\0", 2);
    return bytes;
  }();
  const absl::Status stranger = AskBytes(&EmbeddingService::Pull, segments).status();
  EXPECT_NE(stranger.message().find("must be the first field"), absl::string_view::npos)
      << stranger;
  HashRequest header;
  *header.mutable_header() = Header();
  const absl::Status member =
      AskBytes(&EmbeddingService::Pull, header.SerializeAsString() + segments).status();
  EXPECT_NE(member.message().find("beside its ids and rows"), absl::string_view::npos) << member;
  const std::string fewer = header.SerializeAsString() + segments.substr(0, 2 * kMaxFields);
  const absl::Status many = AskBytes(&EmbeddingService::Pull, fewer).status();
  EXPECT_NE(many.message().find("cut it into several"), absl::string_view::npos) << many;
}

TEST_F(ServiceTest, RefusesMoreTablesThanAServerMayHave) {
  CreateTablesRequest request;
  *request.mutable_header() = Header();
  request.set_num_trainers(1);
  for (uint32_t number = 2; number <= kMaxTables; ++number) {
    TableSpec& spec = *request.add_tables();
    spec = MakeTableSpec(number, 1);
    if (request.tables_size() < static_cast<int>(kMaxTables) / 2) continue;
    ASSERT_TRUE(Ask(&EmbeddingService::CreateTables, request).ok());
    ASSERT_TRUE(Ask(&EmbeddingService::CreateTables, request).ok()) << "known tables count once";
    request.clear_tables();
  }
  ASSERT_TRUE(Ask(&EmbeddingService::CreateTables, request).ok());
  request.clear_tables();
  *request.add_tables() = MakeTableSpec(kMaxTables + 1, 1);
  ExpectRefused(&EmbeddingService::CreateTables, request, absl::StatusCode::kInvalidArgument,
                "tables");
}

TEST_F(ServiceTest, RefusesToReadRowsOfAWidthThatTheTableHasNot) {
  CreateTablesRequest create;
  *create.mutable_header() = Header();
  *create.add_tables() = MakeTableSpec(2, 3);
  create.mutable_tables(0)->set_dense(true);
  create.set_num_trainers(1);
  ASSERT_TRUE(Ask(&EmbeddingService::CreateTables, create).ok());
  ReadRequest read;
  *read.mutable_header() = Header();
  read.set_table(2);
  read.set_width(1 << 24);
  read.set_ids(std::string(8, '\1'));
  ExpectRefused(&EmbeddingService::Read, read, absl::StatusCode::kInvalidArgument,
                "rows of 16777216 numbers");
}

TEST_F(ServiceTest, RefusesSizesThatDoNotFit) {
  for (uint64_t count : {uint64_t{1}, uint64_t{3}, ~uint64_t{0}, uint64_t{1} << 61}) {
    PullRequest pull = Pull({5, 6});
    pull.mutable_segments(0)->set_count(count);
    ExpectRefused(&EmbeddingService::Pull, pull, absl::StatusCode::kInvalidArgument,
                  "segments count");
    PushRequest push = Push({5, 6}, {1, 2, 3, 4, 5, 6});
    push.mutable_segments(0)->set_count(count);
    ExpectRefused(&EmbeddingService::Push, push, absl::StatusCode::kInvalidArgument,
                  "segments count");
  }
  PullRequest ragged = Pull({5});
  ragged.mutable_ids()->push_back('x');
  ExpectRefused(&EmbeddingService::Pull, ragged, absl::StatusCode::kInvalidArgument, "malformed");
  ExpectRefused(&EmbeddingService::Push, Push({5}, {1, 2}), absl::StatusCode::kInvalidArgument,
                "gradients");
  PullRequest stranger = Pull({5});
  stranger.mutable_segments(0)->set_table(8);
  ExpectRefused(&EmbeddingService::Pull, stranger, absl::StatusCode::kInvalidArgument,
                "no table 8");
}

TEST_F(ServiceTest, RefusesAMessageAboveTheLimitBeforeAllocating) {
  CreateTablesRequest request;
  *request.mutable_header() = Header();
  *request.add_tables() = MakeTableSpec(2, 65536);
  request.set_num_trainers(1);
  ASSERT_TRUE(Ask(&EmbeddingService::CreateTables, request).ok());
  std::vector<uint64_t> ids(300);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = i + 1;
  PullRequest pull = Pull(ids);
  pull.mutable_segments(0)->set_table(2);
  ExpectRefused(&EmbeddingService::Pull, pull, absl::StatusCode::kInvalidArgument, "cut it");
}

TEST_F(ServiceTest, RefusesTablesThatCannotBe) {
  const auto refused = [this](auto change, const char* word) {
    CreateTablesRequest request;
    *request.mutable_header() = Header();
    TableSpec& spec = *request.add_tables();
    spec = MakeTableSpec(2, 4, SPARSE_ADAM);
    change(spec);
    request.set_num_trainers(1);
    ExpectRefused(&EmbeddingService::CreateTables, request, absl::StatusCode::kInvalidArgument,
                  word);
  };
  refused([](TableSpec& spec) { spec.set_dim(0); }, "dim is 0");
  refused([](TableSpec& spec) { spec.set_dim(1u << 31); }, "dim is 2147483648");
  refused([](TableSpec& spec) { spec.set_beta1(1); }, "beta1 is 1");
  refused([](TableSpec& spec) { spec.set_optimizer(static_cast<tandem::SparseOptimizer>(99)); },
          "unknown sparse optimizer 99");
  refused([](TableSpec& spec) { spec.set_mode(static_cast<TableSpec::Mode>(9)); }, "mode is 9");
  refused([](TableSpec& spec) { spec.set_non_finite(static_cast<TableSpec::NonFinite>(9)); },
          "non_finite 9");
  refused([](TableSpec& spec) { spec.set_max_row_norm(-1); }, "max_row_norm is -1");
  PullRequest pull = Pull({5});
  pull.mutable_segments(0)->set_table(2);
  ExpectRefused(&EmbeddingService::Pull, pull, absl::StatusCode::kInvalidArgument, "no table 2");
}

TEST_F(ServiceTest, RefusedPushesChangeNothing) {
  PushRequest stranger = Push({5}, {1, 2, 3});
  stranger.mutable_segments(0)->set_table(8);
  ExpectRefused(&EmbeddingService::Push, stranger, absl::StatusCode::kInvalidArgument,
                "no table 8");
  ExpectRefused(&EmbeddingService::Push, Push({5}, {1, 2, 3, 4}),
                absl::StatusCode::kInvalidArgument, "gradients");
  ExpectRefused(&EmbeddingService::Push, Push({5, 5}, {1, 2, 3, 4, 5, 6}),
                absl::StatusCode::kInvalidArgument, "twice");
  ExpectRefused(&EmbeddingService::Push, Push({0}, {1, 2, 3}), absl::StatusCode::kInvalidArgument,
                "0");
  const float bad = std::numeric_limits<float>::quiet_NaN();
  ExpectRefused(&EmbeddingService::Push, Push({5, 6}, {1, 2, 3, 4, bad, 6}),
                absl::StatusCode::kOutOfRange,
                "id 6 is not finite (NaN or infinity), from trainer 0 in step 1");
  CommitRequest commit;
  *commit.mutable_header() = Header();
  commit.set_step(1);
  commit.set_gradient_scale(1);
  commit.add_rates()->set_table(1);
  ASSERT_TRUE(Ask(&EmbeddingService::Commit, commit).ok());
  HashRequest hash;
  *hash.mutable_header() = Header();
  HashReply reply;
  ASSERT_TRUE(reply.ParseFromString(*Ask(&EmbeddingService::Hash, hash)));
  EXPECT_EQ(reply.num_rows(), 0u);
}

TEST_F(ServiceTest, RefusesADamagedPayload) {
  PushRequest push = Push({5}, {1, 2, 3});
  (*push.mutable_gradients())[5] ^= 1;
  ExpectRefused(&EmbeddingService::Push, push, absl::StatusCode::kInvalidArgument,
                "payload checksum");
  push.clear_payload_crc32c();
  ExpectRefused(&EmbeddingService::Push, push, absl::StatusCode::kInvalidArgument,
                "has no payload checksum");
}

TEST_F(ServiceTest, RowsTravelInTheFormatAskedFor) {
  PullReply exact;
  ASSERT_TRUE(exact.ParseFromString(*Ask(&EmbeddingService::Pull, Pull({5, 6}))));
  std::vector<float> rows(6);
  std::memcpy(rows.data(), exact.rows().data(), 24);
  for (WireFormat format : {WIRE_BF16, WIRE_F16, WIRE_INT8}) {
    PullRequest pull = Pull({5, 6});
    pull.set_rows_format(format);
    PullReply reply;
    ASSERT_TRUE(reply.ParseFromString(*Ask(&EmbeddingService::Pull, pull)));
    EXPECT_EQ(reply.rows(), Encoded(format, rows)) << NameOf(format);
  }
}

// Pushes one step's gradients, exact in every format, with messages cut anywhere.
TEST_F(ServiceTest, GradientsCountAlikeInAnyFormatAndHoweverTheMessageIsSliced) {
  const std::vector<float> gradients = {127, 0, -127, 254, 2, -254};
  uint64_t sequence = 0;
  double pushes = 0;
  for (WireFormat format : {WIRE_F32, WIRE_BF16, WIRE_F16, WIRE_INT8}) {
    PushRequest push = Push({7, 9}, gradients);
    push.set_gradients_format(format);
    push.set_gradients(Encoded(format, gradients));
    push.set_ids_format(IDS_DELTA);
    push.set_ids(std::string("\7\2"));
    Sign(push);
    const size_t size = push.SerializeAsString().size() + 1;
    for (size_t first = 0; first <= size; ++first, ++pushes) {
      push.set_sequence(++sequence);
      const std::string bytes = push.SerializeAsString();
      const size_t cut = std::min(first, bytes.size()), next = std::min(first + 5, bytes.size());
      rpc::Payload sliced;
      for (const auto& [begin, end] :
           {std::pair<size_t, size_t>{0, cut}, {cut, next}, {next, bytes.size()}}) {
        auto owner = std::make_shared<const std::string>(bytes.substr(begin, end - begin));
        sliced.Append(owner->data(), owner->size(), owner);
      }
      const auto answer = AskPayload(&EmbeddingService::Push, std::move(sliced));
      ASSERT_TRUE(answer.ok()) << answer.status() << " " << NameOf(format) << " cut at " << cut;
    }
  }
  GradientNormRequest norm;
  *norm.mutable_header() = Header();
  norm.set_step(1);
  GradientNormReply reply;
  ASSERT_TRUE(reply.ParseFromString(*Ask(&EmbeddingService::GradientNorm, norm)));
  double squares = 0;
  for (float g : gradients) squares += pushes * pushes * double{g} * double{g};
  EXPECT_EQ(static_cast<double>(reply.squared_norm_high()), squares);
}

TEST_F(ServiceTest, RefusesFormatsAndDifferencesThatNobodyWrites) {
  PullRequest pull = Pull({5});
  pull.set_rows_format(static_cast<WireFormat>(9));
  ExpectRefused(&EmbeddingService::Pull, pull, absl::StatusCode::kInvalidArgument,
                "format of rows 9");
  pull = Pull({5});
  pull.set_ids_format(static_cast<IdsFormat>(9));
  ExpectRefused(&EmbeddingService::Pull, pull, absl::StatusCode::kInvalidArgument, "ids_format 9");
  const auto expect = [&](const std::string& ids, uint64_t count, const char* word) {
    PullRequest differences = Pull({5});
    differences.set_ids_format(IDS_DELTA);
    differences.set_ids(ids);
    differences.mutable_segments(0)->set_count(count);
    ExpectRefused(&EmbeddingService::Pull, differences, absl::StatusCode::kInvalidArgument, word);
    PushRequest push = Push({5}, std::vector<float>(3 * std::min<uint64_t>(count, 9)));
    push.set_ids_format(IDS_DELTA);
    push.set_ids(ids);
    push.mutable_segments(0)->set_count(count);
    Sign(push);
    ExpectRefused(&EmbeddingService::Push, push, absl::StatusCode::kInvalidArgument, word);
  };
  expect("\5", 2, "segments count more ids");
  expect("\5", uint64_t{1} << 61, "segments count more ids");
  expect("\5\5", 1, "segments count fewer ids");
  expect(std::string("\5\0", 2), 2, "id 5 comes twice");
  expect(std::string("\0", 1), 1, "id 0 is padding");
  expect("\x85", 1, "ids end after");
  PushRequest push = Push({5}, {1, 2, 3});
  push.set_gradients_format(WIRE_BF16);
  ExpectRefused(&EmbeddingService::Push, push, absl::StatusCode::kInvalidArgument,
                "gradients are not as long");
  push = Push({5}, {1, 2, 3});
  push.set_gradients_format(WIRE_F16);
  push.set_gradients(Encoded(WIRE_F16, {1, std::nanf(""), 3}));
  Sign(push);
  ExpectRefused(&EmbeddingService::Push, push, absl::StatusCode::kOutOfRange, "id 5 is not finite");
  HashRequest hash;
  *hash.mutable_header() = Header();
  HashReply reply;
  ASSERT_TRUE(reply.ParseFromString(*Ask(&EmbeddingService::Hash, hash)));
  EXPECT_EQ(reply.num_rows(), 0u);
}

TEST_F(ServiceTest, RefusesBytesThatAreNoMessage) {
  for (const std::string& bytes :
       {std::string("\xff\xff\xff"), std::string("\x7a\x7f", 2), std::string("\x0a\x05zz")}) {
    for (auto method : {&EmbeddingService::Pull, &EmbeddingService::Push, &EmbeddingService::Commit,
                        &EmbeddingService::Hash, &EmbeddingService::GradientNorm,
                        &EmbeddingService::CreateTables}) {
      EXPECT_TRUE(absl::IsInvalidArgument(AskBytes(method, bytes).status()));
    }
  }
}

}  // namespace
}  // namespace tandem::ps
