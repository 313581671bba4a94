#include "ps/client/remote_tables.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "ps/client/shared_promise.h"
#include "ps/wire/statistics.h"
#include "rpc/role_trace.h"

namespace tandem::ps {
namespace {

using rpc::Done;
using rpc::Future;
using rpc::Payload;

// Calls carry their deadline. The extra second lets the answer come through.
absl::Time AnswerBy(absl::Time deadline) { return deadline + absl::Seconds(1); }

// Fulfils the promise when every server has answered, or with the first error.
std::function<void(Servers::Replies)> WhenAnswered(const SharedPromise<Done>& promise) {
  return [promise](const Servers::Replies& replies) {
    if (replies.ok())
      promise.Set(Done());
    else
      promise.Set(replies.status());
  };
}

// Fulfils the promise with the sum of the servers' replies: add(reply, &total) for each. `what`
// names the call in errors.
template <class Reply, class Total, class Add>
std::function<void(Servers::Replies)> WhenSummed(const char* what,
                                                 const SharedPromise<Total>& promise,
                                                 const Add& add) {
  return [what, promise, add](Servers::Replies replies) {
    if (!replies.ok()) return promise.Set(replies.status());
    Total total;
    for (Payload& payload : *replies) {
      const std::string_view bytes = payload.Flatten();
      Reply reply;
      if (!reply.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
        return promise.Set(absl::InternalError(absl::StrCat("malformed reply to a ", what)));
      add(reply, &total);
    }
    promise.Set(std::move(total));
  };
}

}  // namespace

RemoteTables::RemoteTables(const std::vector<std::string>& addresses, Router router,
                           RequestHeader header, uint32_t num_trainers, RemoteClientOptions options)
    : router_(std::move(router)),
      header_(std::move(header)),
      num_trainers_(num_trainers),
      options_(std::move(options)),
      servers_(addresses, options_.timeout, options_.shared_memory, options_.credentials) {
  TANDEM_CHECK_EQ(router_.num_owners(), static_cast<int>(addresses.size()));
}

absl::Status RemoteTables::CreateTables(const std::vector<TableSpec>& tables,
                                        absl::Duration timeout) {
  CreateTablesRequest request;
  *request.mutable_header() = header_;
  request.mutable_tables()->Add(tables.begin(), tables.end());
  request.set_num_trainers(num_trainers_);
  *request.mutable_consistency() = options_.consistency;
  SharedPromise<Done> created;
  const absl::Time deadline = absl::Now() + timeout;
  servers_.CallAll("CreateTables", "create tables", request.SerializeAsString(), deadline,
                   WhenAnswered(created));
  RETURN_IF_ERROR(created.future().Wait(AnswerBy(deadline)).status());
  for (const TableSpec& spec : tables) specs_[spec.number()] = spec;
  return absl::OkStatus();
}

absl::Status RemoteTables::Assign(const RowsToAssign& rows, absl::Time deadline) {
  return CallForRows(
      "Assign", {rows.table, rows.ids}, rows.width, deadline,
      [&](const RowsMessage& part) { return EncodeAssign(header_, rows, part); },
      [](const RowsMessage&, const Payload&) { return absl::OkStatus(); });
}

absl::Status RemoteTables::Read(const RowsToRead& rows, absl::Time deadline) {
  return CallForRows(
      "Read", {rows.table, rows.ids}, rows.width, deadline,
      [&](const RowsMessage& part) { return EncodeRead(header_, rows, part); },
      [&](const RowsMessage& part, Payload answer) {
        return TakeRead(rows, part, std::move(answer));
      });
}

absl::Status RemoteTables::CallForRows(
    const char* method, const SegmentIds& rows, size_t width, absl::Time deadline,
    const std::function<Payload(const RowsMessage&)>& encode,
    const std::function<absl::Status(const RowsMessage&, Payload)>& take) {
  ASSIGN_OR_RETURN(const TableSpec* const spec, FindSpec(specs_, rows.table));
  ASSIGN_OR_RETURN(const std::vector<OwnedIds> split,
                   router_.Split(rows.table, spec->name(), rows.ids.data(), rows.ids.size()));
  const std::string what = absl::StrCat(method, " of table ", spec->name());
  const size_t at_once = std::max(size_t{1}, options_.message_bytes / CallBytes(1, width));
  bool more = true;
  for (size_t begin = 0; more; begin += at_once) {
    more = false;
    std::vector<std::pair<size_t, Future<Payload>>> calls;  // [server, its call]
    const auto part_of = [&](size_t server) {
      return RowsMessage{split[server], begin, std::min(begin + at_once, split[server].ids.size())};
    };
    for (size_t server = 0; server < split.size(); ++server) {
      if (begin >= split[server].ids.size()) continue;
      more = true;
      calls.emplace_back(server, servers_.Call(server, method, encode(part_of(server)), deadline));
    }
    for (auto& [server, call] : calls) {
      absl::StatusOr<Payload> answer = call.Wait(AnswerBy(deadline));
      absl::Status status = answer.status();
      if (status.ok()) status = take(part_of(server), *std::move(answer));
      if (!status.ok()) return Annotate(status, what, static_cast<int>(server));
    }
  }
  return absl::OkStatus();
}

Future<HashResult> RemoteTables::Hash() {
  HashRequest request;
  *request.mutable_header() = header_;
  SharedPromise<HashResult> hash;
  servers_.CallAll(
      "Hash", "hash", request.SerializeAsString(), absl::Now() + options_.timeout,
      WhenSummed<HashReply>("hash", hash, [](const HashReply& reply, HashResult* total) {
        total->hash += absl::MakeUint128(reply.hash_high(), reply.hash_low());
        total->num_rows += reply.num_rows();
      }));
  return hash.future();
}

Future<StatisticsReply> RemoteTables::Statistics() {
  StatisticsRequest request;
  *request.mutable_header() = header_;
  SharedPromise<StatisticsReply> statistics;
  servers_.CallAll("Statistics", "statistics", request.SerializeAsString(),
                   absl::Now() + options_.timeout,
                   WhenSummed<StatisticsReply>("call for statistics", statistics, MergeStatistics));
  return statistics.future();
}

Future<std::vector<SavedFile>> RemoteTables::Save(uint64_t step, const std::string& folder,
                                                  absl::Time deadline) {
  const ConcurrentSpan span = TraceCall(SpanKind::CHECKPOINT, "save", step);
  SaveRequest request;
  *request.mutable_header() = HeaderOf(span);
  request.set_step(step);
  request.set_folder(folder);
  SharedPromise<std::vector<SavedFile>> saved(span);
  servers_.CallAll("Save", absl::StrCat("save after step ", step), request.SerializeAsString(),
                   deadline,
                   WhenSummed<SaveReply>(
                       "save", saved, [](const SaveReply& reply, std::vector<SavedFile>* files) {
                         files->insert(files->end(), reply.files().begin(), reply.files().end());
                       }));
  return saved.future();
}

Future<Done> RemoteTables::Load(uint64_t step, const std::string& folder,
                                const std::vector<std::string>& files, absl::Time deadline) {
  LoadRequest request;
  *request.mutable_header() = header_;
  request.set_step(step);
  request.set_folder(folder);
  request.mutable_files()->Add(files.begin(), files.end());
  std::vector<Payload> requests;
  for (int server = 0; server < router_.num_owners(); ++server) {
    const std::vector<ShardRange> shards = router_.ShardsOf(server);
    request.mutable_shards()->Assign(shards.begin(), shards.end());
    requests.emplace_back(request.SerializeAsString());
  }
  SharedPromise<Done> loaded;
  servers_.CallEach("Load", absl::StrCat("load of step ", step), requests, deadline,
                    WhenAnswered(loaded));
  return loaded.future();
}

absl::StatusOr<std::vector<RoleTrace>> RemoteTables::TakeTraces(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  std::vector<RoleTrace> traces;
  for (size_t server = 0; server < servers_.size(); ++server) {
    auto trace = rpc::CallTakeTrace(servers_.channel(server), "tandem.EmbeddingService", header_,
                                    absl::StrCat("ps-", server), deadline);
    if (!trace.ok()) return Annotate(trace.status(), "take trace", static_cast<int>(server));
    traces.push_back(*std::move(trace));
  }
  return traces;
}

}  // namespace tandem::ps
