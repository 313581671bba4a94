#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "google/protobuf/stubs/logging.h"
#include "kernels/base/check.h"
#include "kernels/base/crc32c.h"
#include "ps/server/service.h"
#include "ps/server/table_host.h"
#include "rpc/protocol_version.h"
#include "tests/fuzz/memory_use.h"
#include "tests/fuzz/target.h"
#include "tests/ps/server/handler_call.h"
#include "tests/ps/spec.h"

namespace tandem::fuzz {
namespace {

using ps::EmbeddingService;
using ps::HandlerCall;

// Save and Load are left out: fuzzed bytes must not choose files. RowFile fuzzes the files that
// they read.
constexpr HandlerCall::Method kMethods[] = {
    &EmbeddingService::CreateTables, &EmbeddingService::Pull,       &EmbeddingService::Push,
    &EmbeddingService::GradientNorm, &EmbeddingService::Commit,     &EmbeddingService::Hash,
    &EmbeddingService::Assign,       &EmbeddingService::Read,       &EmbeddingService::Statistics,
    &EmbeddingService::TakeTrace,    &EmbeddingService::PullPooled, &EmbeddingService::PushPooled};
enum Method {
  CREATE_TABLES,
  PULL,
  PUSH,
  GRADIENT_NORM,
  COMMIT,
  HASH,
  ASSIGN,
  READ,
  STATISTICS,
  TAKE_TRACE,
  PULL_POOLED,
  PUSH_POOLED
};
constexpr int kRawHeader = 0x80;  // with the method: the message has its own header and checksum

constexpr uint64_t kJob = 0xfeed;

RequestHeader Header() {
  RequestHeader header;
  header.set_protocol_version(rpc::kProtocolVersion);
  header.set_job_epoch(kJob);
  header.set_generation(1);
  header.set_shard_map_version(1);
  header.mutable_sender()->set_role(TRAINER);
  header.mutable_sender()->set_incarnation(1);
  return header;
}

std::vector<TableSpec> Tables() {
  std::vector<TableSpec> tables = {ps::MakeTableSpec(1, 3), ps::MakeTableSpec(2, 2, SPARSE_ADAM),
                                   ps::MakeTableSpec(3, 4)};
  tables[1].set_storage(STORED_INT8);
  tables[1].set_mode(TableSpec::CATCH_UP);
  tables[1].set_non_finite(TableSpec::CLIP);
  tables[2].set_dense(true);
  return tables;
}

bool CarriesRows(int method) { return method == PUSH || method == PUSH_POOLED || method == ASSIGN; }

// Adds a valid header and a correct checksum, which random bytes hardly ever hit.
std::string Seal(int method, std::string_view message) {
  HashRequest header;  // whose only field is the header, which stands in field 1 of every request
  *header.mutable_header() = Header();
  std::string sealed = header.SerializeAsString() + std::string(message);
  rpc::SplitMessage split;
  const std::vector<int> fields =
      method == PUSH_POOLED ? std::vector<int>{12, 13, 14, 15} : std::vector<int>{14, 15};
  if (!CarriesRows(method) || !rpc::SplitBytesFields(sealed, fields, &split)) return sealed;
  uint32_t crc = 0;
  for (const std::string_view field : split.bytes_fields)
    crc = Crc32c(crc, field.data(), field.size());
  sealed += static_cast<char>((method == ASSIGN ? 4 : 5) << 3 | 5);  // payload_crc32c, fixed32
  return sealed.append(reinterpret_cast<const char*>(&crc), sizeof crc);
}

// A server with a few tables. Checks the memory cost of every message.
class Server {
 public:
  // REQUIRES: `calls` outlives the server, whose destruction sends the last answers.
  explicit Server(std::vector<HandlerCall>* calls) : calls_(*calls) {
    CreateTablesRequest create;
    *create.mutable_header() = Header();
    for (const TableSpec& spec : Tables()) *create.add_tables() = spec;
    create.set_num_trainers(1);
    TANDEM_CHECK(
        HandlerCall(service_, kMethods[CREATE_TABLES], create.SerializeAsString()).Wait().ok());
    kept_bytes_ = KeptBytes();
  }

  // Sends one message. Measures all work of the server until it answers the next one.
  void Send(int method, std::string message) {
    const size_t num_bytes = message.size();
    const MemoryUse use;
    calls_.emplace_back(service_, kMethods[method], std::move(message));
    if (method == ASSIGN) calls_.back().Wait().IgnoreError();  // later messages may need the rows
    const size_t kept_before = std::exchange(kept_bytes_, KeptBytes());
    // Rows and tables that a message asks for are no waste, nor is the answer. Rows and tables grow
    // by copying.
    const size_t asked_for =
        3 * (std::max(kept_bytes_, kept_before) - kept_before) + 2 * calls_.back().answer_bytes();
    const size_t allowed =
        AllowedBytes(num_bytes, CarriesRows(method) ? kRowsFactor : kOtherFactor) + asked_for;
    TANDEM_CHECK_LE(use.peak_bytes(), allowed)
        << "a message of " << num_bytes << " bytes to method " << method;
  }

 private:
  // The bytes of the rows, plus a table's working memory: some arrays as wide as a row.
  size_t KeptBytes() {
    StatisticsRequest request;
    *request.mutable_header() = Header();
    const auto answer =
        HandlerCall(service_, kMethods[STATISTICS], request.SerializeAsString()).Wait();
    // The server keeps serving, unless finite gradients have added up to an infinity.
    if (absl::IsOutOfRange(answer.status())) return kept_bytes_;
    StatisticsReply reply;
    TANDEM_CHECK(answer.ok() && reply.ParseFromString(*answer)) << answer.status();
    size_t num_bytes = 0;
    for (const TableStatistics& table : reply.tables()) {
      constexpr size_t kArrays = 6, kLeastNumbers = 2048;
      num_bytes += table.memory_bytes() +
                   kArrays * sizeof(float) *
                       std::max<size_t>(host_.Dim(table.number()).value_or(0), kLeastNumbers);
    }
    return num_bytes;
  }

  std::vector<HandlerCall>& calls_;
  ps::TableHost host_{1};
  EmbeddingService service_{host_, kJob, 1, 1};
  size_t kept_bytes_ = 0;
};

// Input: messages, each after one byte for its method and two bytes for its length.
void Run(std::string_view bytes) {
  const google::protobuf::LogSilencer silencer;  // silences warnings about invalid UTF-8
  std::vector<HandlerCall> calls;
  {
    Server server(&calls);
    while (bytes.size() >= 3) {
      const int kind = static_cast<unsigned char>(bytes[0]);
      const int method = (kind & ~kRawHeader) % static_cast<int>(std::size(kMethods));
      const size_t size = static_cast<unsigned char>(bytes[1]) |
                          static_cast<size_t>(static_cast<unsigned char>(bytes[2])) << 8;
      const std::string_view message = bytes.substr(3, size);
      bytes.remove_prefix(3 + message.size());
      server.Send(method, kind & kRawHeader ? std::string(message) : Seal(method, message));
    }
  }
  for (const HandlerCall& call : calls) TANDEM_CHECK(call.answered());
}

template <class Request>
std::string Call(Method method, const Request& request) {
  const std::string message = request.SerializeAsString();
  return std::string{static_cast<char>(method), static_cast<char>(message.size() & 255),
                     static_cast<char>(message.size() >> 8)} +
         message;
}

template <class Request>
void AddIds(uint32_t table, const std::vector<uint64_t>& ids, Request* request) {
  Segment& segment = *request->add_segments();
  segment.set_table(table);
  segment.set_count(ids.size());
  request->mutable_ids()->append(reinterpret_cast<const char*>(ids.data()),
                                 ids.size() * sizeof ids[0]);
}

std::vector<std::string> Seeds() {
  PullRequest pull;
  pull.set_create(true);
  AddIds(1, {5, 6}, &pull);
  AddIds(2, {7}, &pull);
  PullRequest changed = pull;
  changed.set_versions(std::string(12, '\1'));
  changed.mutable_segments(0)->set_read_bound(1);
  changed.set_rows_format(WIRE_INT8);
  PullRequest delta;
  delta.set_ids_format(IDS_DELTA);
  delta.add_segments()->set_table(1);
  delta.mutable_segments(0)->set_count(2);
  delta.set_ids("\x05\x81\x01");
  PushRequest push;
  push.set_sequence(1);
  push.set_step(1);
  AddIds(1, {5, 6}, &push);
  AddIds(2, {7}, &push);
  push.set_gradients(std::string(32, '\x3e'));
  PushRequest narrow = push;
  narrow.set_sequence(2);
  narrow.set_gradients_format(WIRE_BF16);
  narrow.set_gradients(std::string(16, '\x3e'));
  GradientNormRequest norm;
  norm.set_step(1);
  CommitRequest commit;
  commit.set_step(1);
  commit.set_gradient_scale(1);
  for (uint32_t table : {1u, 2u, 3u}) {
    commit.add_rates()->set_table(table);
    commit.mutable_rates(commit.rates_size() - 1)->set_learning_rate(0.5);
  }
  AssignRequest assign;
  assign.set_table(3);
  assign.set_width(4);
  assign.set_ids(std::string("\x01\0\0\0\0\0\0\0", 8));
  assign.set_values(std::string(16, '\x3f'));
  ReadRequest read;
  read.set_table(3);
  read.set_width(4);
  read.set_ids(assign.ids());
  CreateTablesRequest create;
  *create.add_tables() = ps::MakeTableSpec(4, 3, SPARSE_FTRL);
  create.set_num_trainers(1);
  PullPooledRequest pool;
  pool.set_step(1);
  pool.set_create(true);
  BagSegment& bags = *pool.add_segments();
  bags.set_table(1);
  bags.set_ids(2);
  bags.set_bags(2);
  bags.set_weighted(true);
  pool.set_counts(std::string("\1\0\0\0\1\0\0\0", 8));
  pool.set_weights(std::string(8, '\x3e'));
  pool.set_ids(push.ids().substr(0, 16));
  PushPooledRequest push_pooled;
  push_pooled.set_sequence(3);
  push_pooled.set_step(1);
  *push_pooled.add_segments() = bags;
  push_pooled.set_counts(pool.counts());
  push_pooled.set_weights(pool.weights());
  push_pooled.set_ids(pool.ids());
  push_pooled.set_gradients(std::string(24, '\x3e'));
  const std::string pushes = Call(PUSH, push) + Call(PUSH, push) + Call(PUSH, narrow);
  const std::string step = pushes + Call(GRADIENT_NORM, norm) + Call(COMMIT, commit);
  return {
      Call(PULL, pull) + step + Call(HASH, HashRequest()) + Call(PULL, changed) + Call(PULL, delta),
      Call(ASSIGN, assign) + Call(READ, read) + Call(CREATE_TABLES, create) +
          Call(TAKE_TRACE, TakeTraceRequest()),
      Call(COMMIT, commit) + Call(PUSH, push) + Call(STATISTICS, StatisticsRequest()),
      Call(PULL_POOLED, pool) + Call(PUSH_POOLED, push_pooled) + Call(COMMIT, commit)};
}

// Repeats one field `count` times.
std::string Repeat(const std::string& field, size_t count) {
  std::string bytes;
  bytes.reserve(field.size() * count);
  for (size_t i = 0; i < count; ++i) bytes += field;
  return bytes;
}

}  // namespace

void SendHostileCalls() {
  const google::protobuf::LogSilencer silencer;
  std::vector<HandlerCall> calls;
  Server server(&calls);
  const size_t kMany = 1'000'000;
  // Fields of two bytes, for each of which a parser makes an object: every length-delimited field,
  // and unknown fields.
  for (int method = 0; method < static_cast<int>(std::size(kMethods)); ++method) {
    for (char field = 1; field < 16; ++field) {
      const std::string many = Repeat(std::string{static_cast<char>(field << 3 | 2), '\0'}, kMany);
      server.Send(method, many);
      server.Send(method, Seal(method, many));
    }
    server.Send(method, Seal(method, Repeat(std::string("\x78\0", 2), kMany)));
    server.Send(method, Seal(method, std::string("\xf2\x01\x80\x80\x80\x02", 6) +
                                         std::string(4 << 20, 'x')));  // one unknown field
  }
  // Ids that no segment counts, and counts without ids.
  for (const uint64_t count : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 40, ~uint64_t{0}}) {
    for (const int format : {IDS_RAW, IDS_DELTA}) {
      PullRequest pull;
      pull.add_segments()->set_table(1);
      pull.mutable_segments(0)->set_count(count);
      pull.set_ids_format(static_cast<IdsFormat>(format));
      server.Send(PULL, Seal(PULL, pull.SerializeAsString()));
      pull.set_ids(std::string(kMany, '\0'));
      server.Send(PULL, Seal(PULL, pull.SerializeAsString()));
      server.Send(PUSH, Seal(PUSH, pull.SerializeAsString()));
    }
  }
  // A row wider than any table's.
  ReadRequest read;
  read.set_table(3);
  read.set_width((16u << 20) - 1);
  read.set_ids(std::string(8, '\1'));
  server.Send(READ, Seal(READ, read.SerializeAsString()));
  // A name of megabytes.
  CreateTablesRequest create;
  create.add_tables()->set_name(std::string(4 << 20, 'n'));
  create.set_num_trainers(1);
  server.Send(CREATE_TABLES, Seal(CREATE_TABLES, create.SerializeAsString()));
}

Target ServiceCalls() { return {"service_calls", Run, Seeds}; }

}  // namespace tandem::fuzz
