#include <iterator>
#include <optional>

#include "google/protobuf/stubs/logging.h"
#include "kernels/base/check.h"
#include "kernels/base/crc32c.h"
#include "ps/service.h"
#include "ps/table_host.h"
#include "tests/fuzz/target.h"
#include "tests/ps/handler_call.h"
#include "tests/ps/spec.h"

namespace tandem::fuzz {
namespace {

using ps::EmbeddingService;
using ps::HandlerCall;

// Save and Load are left out: bytes must not choose files. What they read is RowFile's.
constexpr HandlerCall::Method kMethods[] = {
    &EmbeddingService::CreateTables, &EmbeddingService::Pull,       &EmbeddingService::Push,
    &EmbeddingService::GradientNorm, &EmbeddingService::Commit,     &EmbeddingService::Hash,
    &EmbeddingService::Assign,       &EmbeddingService::Read,       &EmbeddingService::Statistics,
    &EmbeddingService::TakeTrace};
enum Method { CREATE_TABLES, PULL, PUSH, GRADIENT_NORM, COMMIT, HASH, ASSIGN, READ, STATISTICS, TAKE_TRACE };
constexpr int kRawHeader = 0x80;  // with the method: the message has its own header and checksum

constexpr uint64_t kJob = 0xfeed;

RequestHeader Header() {
  RequestHeader header;
  header.set_protocol_version(ps::kProtocolVersion);
  header.set_job_epoch(kJob);
  header.set_generation(1);
  header.mutable_sender()->set_role(TRAINER);
  header.mutable_sender()->set_incarnation(1);
  return header;
}

std::vector<TableSpec> Tables() {
  std::vector<TableSpec> tables = {ps::MakeTableSpec(1, 3), ps::MakeTableSpec(2, 2, SPARSE_ADAM), ps::MakeTableSpec(3, 4)};
  tables[1].set_storage(STORED_INT8);
  tables[1].set_mode(TableSpec::CATCH_UP);
  tables[1].set_non_finite(TableSpec::CLIP);
  tables[2].set_dense(true);
  return tables;
}

// A header that is let in, and a checksum that is right: bytes hardly ever find them.
std::string Seal(int method, std::string_view message) {
  HashRequest header;  // whose only field is the header, which stands in field 1 of every request
  *header.mutable_header() = Header();
  std::string sealed = header.SerializeAsString() + std::string(message);
  rpc::SplitMessage split;
  if ((method != PUSH && method != ASSIGN) || !rpc::SplitBytesFields(sealed, {14, 15}, &split)) return sealed;
  uint32_t crc = Crc32c(0, split.bytes_fields[0].data(), split.bytes_fields[0].size());
  crc = Crc32c(crc, split.bytes_fields[1].data(), split.bytes_fields[1].size());
  sealed += static_cast<char>((method == PUSH ? 5 : 4) << 3 | 5);  // payload_crc32c, fixed32
  return sealed.append(reinterpret_cast<const char*>(&crc), sizeof crc);
}

// Messages, each behind a byte for its method and two for its length.
void Run(std::string_view bytes) {
  const google::protobuf::LogSilencer silencer;  // of names that are not UTF-8
  std::vector<HandlerCall> calls;
  {
    ps::TableHost host(1);
    EmbeddingService service(host, kJob, 1, 1);
    CreateTablesRequest create;
    *create.mutable_header() = Header();
    for (const TableSpec& spec : Tables()) *create.add_tables() = spec;
    create.set_num_trainers(1);
    TANDEM_CHECK(HandlerCall(service, kMethods[CREATE_TABLES], create.SerializeAsString()).Wait().ok());
    while (bytes.size() >= 3) {
      const int kind = static_cast<unsigned char>(bytes[0]);
      const int method = (kind & ~kRawHeader) % static_cast<int>(std::size(kMethods));
      const size_t size = static_cast<unsigned char>(bytes[1]) | static_cast<size_t>(static_cast<unsigned char>(bytes[2])) << 8;
      const std::string_view message = bytes.substr(3, size);
      bytes.remove_prefix(3 + message.size());
      calls.emplace_back(service, kMethods[method], kind & kRawHeader ? std::string(message) : Seal(method, message));
      if (method == ASSIGN) calls.back().Wait().IgnoreError();  // what comes next may want the rows
    }
    // It goes on serving.
    StatisticsRequest statistics;
    *statistics.mutable_header() = Header();
    TANDEM_CHECK(HandlerCall(service, kMethods[STATISTICS], statistics.SerializeAsString()).Wait().ok());
  }
  for (const HandlerCall& call : calls) TANDEM_CHECK(call.answered());
}

template <class Request>
std::string Call(Method method, const Request& request) {
  const std::string message = request.SerializeAsString();
  return std::string{static_cast<char>(method), static_cast<char>(message.size() & 255), static_cast<char>(message.size() >> 8)} +
         message;
}

template <class Request>
void AddIds(uint32_t table, const std::vector<uint64_t>& ids, Request* request) {
  Segment& segment = *request->add_segments();
  segment.set_table(table);
  segment.set_count(ids.size());
  request->mutable_ids()->append(reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof ids[0]);
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
  const std::string pushes = Call(PUSH, push) + Call(PUSH, push) + Call(PUSH, narrow);
  const std::string step = pushes + Call(GRADIENT_NORM, norm) + Call(COMMIT, commit);
  return {Call(PULL, pull) + step + Call(HASH, HashRequest()) + Call(PULL, changed) + Call(PULL, delta),
          Call(ASSIGN, assign) + Call(READ, read) + Call(CREATE_TABLES, create) + Call(TAKE_TRACE, TakeTraceRequest()),
          Call(COMMIT, commit) + Call(PUSH, push) + Call(STATISTICS, StatisticsRequest())};
}

}  // namespace

Target ServiceCalls() { return {"service_calls", Run, Seeds}; }

}  // namespace tandem::fuzz
