// Compares the service core with a model of it (server_model.h) over thousands of random sequences
// of calls, right and wrong.
// Covers every consistency mode and one to three workers and trainers, message by message. Every
// answer must equal the model's, code and bits.
// Calls that the model keeps waiting must wait. Refused calls must not show in any later answer.
// A failure prints the sequence's seed. --gtest_filter=... with kFirstSeed set to the seed runs the
// sequence alone.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <random>

#include "gtest/gtest.h"
#include "kernels/base/crc32c.h"
#include "ps/server/table_host.h"
#include "rpc/protocol_version.h"
#include "tests/ps/server/handler_call.h"
#include "tests/ps/server/server_model.h"
#include "tests/ps/spec.h"
#include "tests/support/temp_folder.h"

namespace tandem::ps {
namespace {

constexpr uint64_t kJob = 0xfeed;
constexpr uint32_t kGeneration = 4;
constexpr int kFirstSeed = 1, kCallsPerSequence = 30;
#ifdef TANDEM_SANITIZED
constexpr int kSequences = 400;
#else
constexpr int kSequences = 2000;
#endif

std::vector<TableSpec> MakeTables() {
  std::vector<TableSpec> tables = {MakeTableSpec(1, 3), MakeTableSpec(2, 5, SPARSE_ADAGRAD)};
  tables[1].set_non_finite(TableSpec::SKIP);
  return tables;
}

float RoundToBf16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  bits += 0x7fff + (bits >> 16 & 1);
  return std::bit_cast<float>(bits & 0xffff0000u);
}

std::string EncodeDelta(const std::vector<uint64_t>& ascending) {
  std::string bytes;
  uint64_t last = 0;
  for (uint64_t id : ascending) {
    uint64_t delta = id - last;
    for (; delta >= 128; delta >>= 7) bytes += static_cast<char>(delta % 128 + 128);
    bytes += static_cast<char>(delta);
    last = id;
  }
  return bytes;
}

template <class T>
std::string BytesOf(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}
template <class T>
std::vector<T> ValuesOf(const std::string& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::copy_n(bytes.data(), values.size() * sizeof(T), reinterpret_cast<char*>(values.data()));
  return values;
}

enum class Fault {
  NONE,
  JOB,
  GENERATION,
  SHARD_MAP,
  ID_ZERO,
  ID_TWICE,
  TABLE,
  COUNT,
  TRUNCATED,
  CHECKSUM,
  DIM,
  NUM_FAULTS
};

// One sequence: a server, its model, and trainers that know which calls to make.
class Sequence {
 public:
  explicit Sequence(int seed)
      : random_(static_cast<uint64_t>(seed)), model_(MakeTables(), 1 + Draw(3), DrawConsistency()) {
    for (uint64_t i = 0; i < 8; ++i) pool_.push_back(i < 4 ? i + 1 : random_() | 1);
    trainers_.resize(model_.num_trainers());
    Start();
  }

  void Run() {
    for (int i = 0; i < kCallsPerSequence && !testing::Test::HasFailure(); ++i) {
      const uint32_t drawn = Draw(1000);
      if (drawn < 240)
        Pull();
      else if (drawn < 640)
        Push();
      else if (drawn < 680)
        Norm();
      else if (drawn < 930)
        Commit();
      else if (drawn < 940)
        SaveAndLoad();
      else
        Compare();
      Settle();
    }
    CompareRows();
    Compare();
    Stop();
  }

 private:
  struct Trainer {
    uint32_t incarnation = 1;
    uint64_t next_sequence = 1;
    std::vector<ModelPush> sent;
  };
  struct Waiting {
    HandlerCall call;
    const char* name;
    bool bf16 = false;  // a pull returns bf16 rows
  };

  uint32_t Draw(uint32_t below) { return static_cast<uint32_t>(random_() % below); }
  bool Chance(uint32_t percent) { return Draw(100) < percent; }

  ConsistencySpec DrawConsistency() {
    consistency_.set_mode(static_cast<ConsistencySpec::Mode>(Chance(40) ? 0 : Draw(4)));
    if (consistency_.mode() == ConsistencySpec::SSP) consistency_.set_staleness(Draw(3));
    if (consistency_.mode() == ConsistencySpec::PERMIT) consistency_.set_staleness(1 + Draw(3));
    return consistency_;
  }

  void Start() {
    host_ = std::make_unique<TableHost>(1 + static_cast<int>(Draw(3)));
    service_ = std::make_unique<EmbeddingService>(*host_, kJob, kGeneration, 1);
    CreateTablesRequest request;
    *request.mutable_header() = Header(ModelCaller{0, 1});
    for (const TableSpec& spec : model_.tables()) *request.add_tables() = spec;
    request.set_num_trainers(model_.num_trainers());
    *request.mutable_consistency() = consistency_;
    EXPECT_TRUE(Ask(&EmbeddingService::CreateTables, request).ok());
  }

  // Stops the server. Every waiting call must be cancelled; none may be forgotten.
  void Stop() {
    service_.reset();
    host_.reset();
    for (const auto& [number, waiting] : waiting_) {
      EXPECT_EQ(waiting.call.Wait().status().code(), absl::StatusCode::kCancelled) << waiting.name;
    }
    waiting_.clear();
  }

  RequestHeader Header(const std::optional<ModelCaller>& caller) const {
    RequestHeader header;
    header.set_protocol_version(rpc::kProtocolVersion);
    header.set_job_epoch(kJob);
    header.set_generation(kGeneration);
    header.set_shard_map_version(1);
    if (!caller.has_value()) return header;
    header.mutable_sender()->set_role(TRAINER);
    header.mutable_sender()->set_rank(caller->trainer);
    header.mutable_sender()->set_incarnation(caller->incarnation);
    return header;
  }

  // Cuts the message into several slices, as messages arrive.
  rpc::Payload Encode(const std::string& bytes) {
    rpc::Payload payload;
    for (size_t begin = 0; begin < bytes.size();) {
      const size_t size =
          Chance(70) ? bytes.size() - begin : 1 + Draw(static_cast<uint32_t>(bytes.size() - begin));
      payload.Append(rpc::Payload(bytes.substr(begin, size)));
      begin += size;
    }
    return payload;
  }

  template <class Request>
  absl::StatusOr<std::string> Ask(HandlerCall::Method method, const Request& request) {
    return HandlerCall(*service_, method, request.SerializeAsString()).Wait();
  }
  template <class Request>
  int Send(const char* name, HandlerCall::Method method, const Request& request,
           bool bf16 = false) {
    waiting_.emplace(
        ++calls_,
        Waiting{HandlerCall(*service_, method, Encode(request.SerializeAsString())), name, bf16});
    return calls_;
  }
  // Makes a call of which the model does not hear, and expects a refusal.
  void ExpectRefused(HandlerCall::Method method, const std::string& bytes, absl::StatusCode code) {
    EXPECT_EQ(HandlerCall(*service_, method, Encode(bytes)).Wait().status().code(), code);
  }

  // Compares the answers of the calls that the model has completed.
  void Settle() {
    for (const auto& [number, expected] : model_.TakeAnswers()) {
      const Waiting waiting = waiting_.at(number);
      waiting_.erase(number);
      const auto answer = waiting.call.Wait();
      ASSERT_EQ(answer.status().code(), expected.code) << waiting.name << ": " << answer.status();
      if (!answer.ok()) continue;
      if (waiting.name == kPull) CompareReply(*answer, expected, waiting.bf16);
      if (waiting.name == kNorm) {
        GradientNormReply reply;
        ASSERT_TRUE(reply.ParseFromString(*answer));
        const double norm = static_cast<double>(reply.squared_norm_high()) +
                            std::ldexp(reply.squared_norm_low(), -64);
        ASSERT_NEAR(norm, expected.squared_norm, 1e-12 * expected.squared_norm);
      }
    }
  }
  static void CompareReply(const std::string& answer, const ModelAnswer& expected, bool bf16) {
    PullReply reply;
    ASSERT_TRUE(reply.ParseFromString(answer));
    ASSERT_EQ(ValuesOf<uint32_t>(reply.versions()), expected.versions);
    std::vector<float> rows = ValuesOf<float>(reply.rows()), expected_rows = expected.rows;
    if (bf16) {
      rows.clear();
      for (uint16_t bits : ValuesOf<uint16_t>(reply.rows()))
        rows.push_back(std::bit_cast<float>(uint32_t{bits} << 16));
      for (float& value : expected_rows) value = RoundToBf16(value);
    }
    ASSERT_EQ(rows, expected_rows);
  }

  ModelCaller DrawCaller() {
    if (Chance(2)) return {model_.num_trainers() + Draw(2), 1};
    const uint32_t trainer = Draw(model_.num_trainers());
    Trainer& of = trainers_[trainer];
    if (Chance(2)) return {trainer, of.incarnation - 1};
    if (Chance(2)) {
      ++of.incarnation;
      of.next_sequence = 1;
    }
    return {trainer, of.incarnation};
  }
  uint64_t DrawStep(const ModelCaller& caller) {
    if (caller.trainer >= model_.num_trainers()) return 1;
    const uint64_t clock = model_.clock(caller.trainer);
    const uint32_t drawn = Draw(100);
    return drawn < 80   ? clock + 1
           : drawn < 90 ? clock + 2
           : drawn < 93 ? clock + 3
           : drawn < 97 ? clock
                        : Draw(2) * (clock + 4);
  }
  std::vector<uint64_t> DrawIds() {
    std::vector<uint64_t> ids = pool_;
    std::shuffle(ids.begin(), ids.end(), random_);
    ids.resize(Draw(6));
    return ids;
  }
  std::vector<ModelIds> DrawSegments() {
    const uint32_t tables = 1 + Draw(3);  // a set of the two
    std::vector<ModelIds> segments;
    for (uint32_t table : {1u, 2u}) {
      if ((tables & table) != 0) segments.push_back({.table = table, .ids = DrawIds()});
    }
    return segments;
  }
  uint32_t DimOf(uint32_t table) const { return model_.tables()[table - 1].dim(); }

  template <class Request>
  void SetSegments(std::vector<ModelIds>& segments, Request* request) {
    const bool ascending = Chance(30);
    for (ModelIds& segment : segments) {
      if (ascending) std::sort(segment.ids.begin(), segment.ids.end());
      Segment& added = *request->add_segments();
      added.set_table(segment.table);
      added.set_count(segment.ids.size());
      request->mutable_ids()->append(ascending ? EncodeDelta(segment.ids) : BytesOf(segment.ids));
    }
    if (ascending) request->set_ids_format(IDS_DELTA);
  }

  void Pull() {
    ModelPull pull{.create = Chance(50), .segments = DrawSegments()};
    if (Chance(85)) pull.caller = DrawCaller();
    pull.step = Chance(25) ? 0 : DrawStep(pull.caller.value_or(ModelCaller()));
    PullRequest request;
    *request.mutable_header() = Header(pull.caller);
    request.set_step(pull.step);
    request.set_create(pull.create);
    SetSegments(pull.segments, &request);
    if (Chance(25)) {
      for (size_t i = 0; i < pull.segments.size(); ++i) {
        ModelIds& segment = pull.segments[i];
        for (size_t j = 0; j < segment.ids.size(); ++j) segment.versions.push_back(Draw(4));
        segment.read_bound = Draw(3);
        request.mutable_segments(static_cast<int>(i))->set_read_bound(segment.read_bound);
        request.mutable_versions()->append(BytesOf(segment.versions));
      }
    }
    const bool bf16 = Chance(20);
    if (bf16) request.set_rows_format(WIRE_BF16);
    if (Chance(8)) return SendFaulty(&EmbeddingService::Pull, request, [](auto&) {});
    model_.Pull(Send(kPull, &EmbeddingService::Pull, request, bf16), pull);
  }

  void Push() {
    ModelPush push;
    push.caller = DrawCaller();
    const bool known = push.caller.trainer < trainers_.size();
    std::vector<ModelPush>* const sent = known ? &trainers_[push.caller.trainer].sent : nullptr;
    if (known && !sent->empty() && Chance(30)) {  // once more, or with some of its ids
      const uint32_t incarnation = push.caller.incarnation;
      push = (*sent)[sent->size() - 1 -
                     Draw(static_cast<uint32_t>(std::min<size_t>(sent->size(), 8)))];
      if (Chance(50)) push.caller.incarnation = incarnation;
    } else {
      push.step = DrawStep(push.caller);
      push.slice = Draw(4);
      if (known) {
        uint64_t& next = trainers_[push.caller.trainer].next_sequence;
        if (Chance(6)) next += 253 + Draw(4);  // to where windows end
        push.sequence = Chance(98) ? next++ : 0;
      }
      push.segments = DrawSegments();
      for (ModelIds& segment : push.segments) segment.gradients = DrawGradients(segment);
      if (known) sent->push_back(push);
      if (Chance(20)) KeepHalf(&push);
    }
    PushRequest request;
    *request.mutable_header() = Header(push.caller);
    request.set_step(push.step);
    request.set_slice(push.slice);
    request.set_sequence(push.sequence);
    for (ModelIds& segment : push.segments) {
      Segment& added = *request.add_segments();
      added.set_table(segment.table);
      added.set_count(segment.ids.size());
      request.mutable_ids()->append(BytesOf(segment.ids));
      request.mutable_gradients()->append(BytesOf(segment.gradients));
    }
    SetChecksum(request);
    if (Chance(10)) return SendFaulty(&EmbeddingService::Push, request, SetChecksum);
    model_.Push(Send("push", &EmbeddingService::Push, request), push);
  }
  std::vector<float> DrawGradients(const ModelIds& segment) {
    std::vector<float> gradients = MakeValues(random_(), segment.ids.size() * DimOf(segment.table));
    if (!gradients.empty() && Chance(3))
      gradients[Draw(static_cast<uint32_t>(gradients.size()))] = DrawNonFinite();
    return gradients;
  }
  float DrawNonFinite() {
    return Chance(50) ? std::numeric_limits<float>::infinity()
                      : std::numeric_limits<float>::quiet_NaN();
  }
  // Imitates virtual shards with two owners: the other half of the push may come later, under the
  // same sequence.
  void KeepHalf(ModelPush* push) {
    for (ModelIds& segment : push->segments) {
      ModelIds half{.table = segment.table};
      for (size_t i = 0; i < segment.ids.size(); ++i) {
        if (ModelShard(segment.table, segment.ids[i]) % 2 == 0) continue;
        half.ids.push_back(segment.ids[i]);
        const auto first =
            segment.gradients.begin() + static_cast<int64_t>(i * DimOf(segment.table));
        half.gradients.insert(half.gradients.end(), first, first + DimOf(segment.table));
      }
      segment = std::move(half);
    }
  }
  static void SetChecksum(PushRequest& request) {
    const std::string bytes = request.ids() + request.gradients();
    request.set_payload_crc32c(Crc32c(0, bytes.data(), bytes.size()));
  }

  static std::string* GradientsOf(PushRequest& request) { return request.mutable_gradients(); }
  static std::string* GradientsOf(PullRequest&) { return nullptr; }

  // Sends the request with one fault and expects a refusal. The model does not hear of it and must
  // still predict all later answers.
  template <class Request, class Seal>
  void SendFaulty(HandlerCall::Method method, Request request, const Seal& seal) {
    const bool raw = request.ids_format() == IDS_RAW;
    const std::vector<uint64_t> ids = ValuesOf<uint64_t>(request.ids());
    const auto set_id = [&request](size_t i, uint64_t id) {
      request.mutable_ids()->replace(i * sizeof id, sizeof id, reinterpret_cast<const char*>(&id),
                                     sizeof id);
    };
    auto fault = static_cast<Fault>(1 + Draw(static_cast<uint32_t>(Fault::NUM_FAULTS) - 1));
    if (fault == Fault::ID_ZERO && (!raw || ids.empty())) fault = Fault::JOB;
    if (fault == Fault::ID_TWICE && (!raw || request.segments(0).count() < 2))
      fault = Fault::GENERATION;
    std::string* const gradients = GradientsOf(request);
    if (fault >= Fault::CHECKSUM && (gradients == nullptr || gradients->empty()))
      fault = Fault::TABLE;
    absl::StatusCode code = absl::StatusCode::kInvalidArgument;
    if (fault == Fault::JOB || fault == Fault::GENERATION || fault == Fault::SHARD_MAP)
      code = absl::StatusCode::kFailedPrecondition;
    if (fault == Fault::JOB) request.mutable_header()->set_job_epoch(kJob + 1);
    if (fault == Fault::GENERATION) request.mutable_header()->set_generation(kGeneration - 1);
    if (fault == Fault::SHARD_MAP) request.mutable_header()->set_shard_map_version(2 * Draw(2));
    if (fault == Fault::ID_ZERO) set_id(Draw(static_cast<uint32_t>(ids.size())), 0);
    if (fault == Fault::ID_TWICE) set_id(1, ids[0]);
    if (fault == Fault::TABLE) request.mutable_segments(0)->set_table(Draw(2) * 9);
    if (fault == Fault::COUNT)
      request.mutable_segments(0)->set_count(request.segments(0).count() + (1ULL << Draw(64)));
    if (fault == Fault::DIM) gradients->resize(gradients->size() - 1 - Draw(4));
    seal(request);
    if (fault == Fault::CHECKSUM) (*gradients)[0] ^= 1;
    std::string bytes = request.SerializeAsString();
    if (fault == Fault::TRUNCATED) bytes.pop_back();
    ExpectRefused(method, bytes, code);
  }

  void Norm() {
    const ModelCaller caller = DrawCaller();
    GradientNormRequest request;
    *request.mutable_header() = Header(caller);
    request.set_step(DrawStep(caller));
    model_.Norm(Send(kNorm, &EmbeddingService::GradientNorm, request), caller, request.step());
  }

  void Commit() {
    // Often all trainers call, one after another, as in training.
    const uint32_t others = Chance(50) ? model_.num_trainers() - 1 : 0;
    ModelCommit commit;
    commit.caller = DrawCaller();
    commit.step = DrawStep(commit.caller);
    commit.skip = Chance(10);
    commit.scale = Chance(2) ? DrawNonFinite() : std::ldexp(1.0f, -static_cast<int>(Draw(2)));
    for (uint32_t table : {1u, 2u}) {
      if (Chance(99)) commit.rates[table] = std::ldexp(1.0f, -static_cast<int>(Draw(2)));
    }
    if (Chance(1)) commit.rates[3] = 1;
    SendCommit(commit);
    for (uint32_t i = 1; i <= others && commit.caller.trainer < model_.num_trainers(); ++i) {
      commit.caller.trainer = (commit.caller.trainer + 1) % model_.num_trainers();
      commit.caller.incarnation = trainers_[commit.caller.trainer].incarnation;
      SendCommit(commit);
    }
  }
  void SendCommit(const ModelCommit& commit) {
    CommitRequest request;
    *request.mutable_header() = Header(commit.caller);
    request.set_step(commit.step);
    request.set_gradient_scale(commit.scale);
    request.set_skip(commit.skip);
    for (const auto& [table, rate] : commit.rates) {
      TableRate& added = *request.add_rates();
      added.set_table(table);
      added.set_learning_rate(rate);
    }
    model_.Commit(Send("commit", &EmbeddingService::Commit, request), commit);
  }

  // Moves to another server with any number of workers. Calls that wait at the first server end
  // with it.
  void SaveAndLoad() {
    const support::TempFolder folder;
    SaveRequest save;
    *save.mutable_header() = Header(ModelCaller{0, 1});
    save.set_step(model_.clock(0) + (Chance(10) ? 1 : 0));
    save.set_folder(folder.path());
    const auto answer = Ask(&EmbeddingService::Save, save);
    ASSERT_EQ(answer.ok(), model_.CanSave(save.step())) << answer.status();
    if (!answer.ok()) return;
    SaveReply saved;
    ASSERT_TRUE(saved.ParseFromString(*answer));
    Settle();
    Stop();
    Start();
    LoadRequest load;
    *load.mutable_header() = Header(ModelCaller{0, 1});
    load.set_step(save.step());
    load.set_folder(folder.path());
    load.add_shards()->set_count(1024);
    for (const SavedFile& file : saved.files()) load.add_files(file.name());
    const auto loaded = Ask(&EmbeddingService::Load, load);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    model_.Reload();
  }

  // Compares the server's statistics and number of rows with the model's. The answer follows all
  // earlier work, so calls that still wait are meant to wait.
  void Compare() {
    StatisticsRequest request;
    *request.mutable_header() = Header(std::nullopt);
    const auto answer = Ask(&EmbeddingService::Statistics, request);
    StatisticsReply statistics;
    ASSERT_TRUE(answer.ok() && statistics.ParseFromString(*answer)) << answer.status();
    for (TableStatistics& table : *statistics.mutable_tables()) {
      TableStatistics compared;
      compared.set_name(table.name());
      compared.set_number(table.number());
      compared.set_rows(table.rows());
      table = compared;
    }
    Settle();
    const StatisticsReply expected = model_.Statistics();
    ASSERT_EQ(statistics.SerializeAsString(), expected.SerializeAsString())
        << statistics.DebugString() << "should be\n"
        << expected.DebugString();
    for (const auto& [number, waiting] : waiting_)
      ASSERT_FALSE(waiting.call.answered()) << waiting.name;
    HashRequest hash;
    *hash.mutable_header() = Header(std::nullopt);
    HashReply hashed;
    ASSERT_TRUE(hashed.ParseFromString(*Ask(&EmbeddingService::Hash, hash)));
    ASSERT_EQ(hashed.num_rows(), model_.committed_rows());
  }

  void CompareRows() {
    ModelPull pull{.segments = {{.table = 1, .ids = pool_}, {.table = 2, .ids = pool_}}};
    PullRequest request;
    *request.mutable_header() = Header(std::nullopt);
    for (const ModelIds& segment : pull.segments) {
      Segment& added = *request.add_segments();
      added.set_table(segment.table);
      added.set_count(segment.ids.size());
      request.mutable_ids()->append(BytesOf(segment.ids));
    }
    model_.Pull(Send(kPull, &EmbeddingService::Pull, request), pull);
    Settle();
  }

  static constexpr const char *kPull = "pull", *kNorm = "gradient norm";

  std::mt19937_64 random_;
  ConsistencySpec consistency_;
  ServerModel model_;
  std::vector<uint64_t> pool_;
  std::vector<Trainer> trainers_;
  std::unique_ptr<TableHost> host_;
  std::unique_ptr<EmbeddingService> service_;
  std::map<int, Waiting> waiting_;
  int calls_ = 0;
};

TEST(ServiceModelTest, AnswersRandomCallsAsTheModelDoes) {
  for (int seed = kFirstSeed; seed < kFirstSeed + kSequences; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Sequence(seed).Run();
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace tandem::ps
