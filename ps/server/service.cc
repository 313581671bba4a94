#include "ps/server/service.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/crc32c.h"
#include "kernels/base/status_macros.h"
#include "kernels/memory/buffer.h"
#include "ps/wire/wire_codec.h"

namespace tandem::ps {
namespace {

absl::Status Malformed(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("malformed message: ", what));
}

absl::Status NotSplit() {
  return Malformed(absl::StrCat("not a protobuf message, or one with more than ", kMaxSmallBytes,
                                " bytes beside its ids and rows"));
}

template <class Message>
rpc::Payload Encode(const Message& message) {
  return rpc::Payload(message.SerializeAsString());
}

TableHost::Done ReplyEmpty(rpc::Reply reply) {
  return [reply = std::move(reply)](absl::Status status) {
    if (status.ok())
      reply(rpc::Payload(std::string()));
    else
      reply(status);
  };
}

Caller CallerOf(const RequestHeader& header) {
  return {header.sender().rank(), header.sender().incarnation()};
}

CommitArgs ArgsOf(const CommitRequest& request, uint64_t step) {
  CommitArgs args;
  args.step = step;
  args.gradient_scale = request.gradient_scale();
  args.skip = request.skip();
  for (const TableRate& rate : request.rates())
    args.rates.push_back({rate.table(), rate.learning_rate()});
  return args;
}

// Returns the number of rows of `width` numbers in a message with `ids_bytes` bytes of ids.
absl::StatusOr<size_t> CountRows(size_t ids_bytes, uint32_t width) {
  const size_t count = ids_bytes / sizeof(uint64_t);
  if (ids_bytes % sizeof(uint64_t) != 0) return Malformed("half an id");
  if (width != 0 && count > kMaxMessageBytes / sizeof(float) / width) {
    return absl::InvalidArgumentError(absl::StrCat(
        "more than ", kMaxMessageBytes, " bytes of rows in one message; cut it into several"));
  }
  return count;
}

// A received message that workers read in place. Its views keep the message alive.
struct Received {
  rpc::Payload payload;
  rpc::SplitMessage split;
  std::vector<std::string_view> gradients;
  std::shared_ptr<Buffer> decoded_ids;
};

// REQUIRES: the header was checked.
absl::StatusOr<std::shared_ptr<Received>> Receive(rpc::Payload& payload,
                                                  const std::vector<int>& bytes_fields) {
  auto received = std::make_shared<Received>();
  received->payload = std::move(payload);
  if (!rpc::SplitBytesFields(received->payload.Flatten(), bytes_fields, &received->split,
                             kMaxSmallBytes))
    return NotSplit();
  return received;
}

template <class Segments>
size_t CountIds(const Segments& segments) {
  size_t count = 0;
  for (const Segment& segment : segments) count += segment.count();
  return count;
}

// Returns the ids of all segments as u64: in place if raw, else decoded into a buffer that
// `received` keeps.
// REQUIRES: CountRowBytes was Ok, which bounds the number of ids by the message's size.
template <class Segments>
absl::StatusOr<const char*> ReadIds(const Segments& segments, IdsFormat format,
                                    Received& received) {
  std::string_view bytes = received.split.bytes_fields[0];
  if (format == IDS_RAW) return bytes.data();
  received.decoded_ids = Buffer::Allocate(CountIds(segments) * sizeof(uint64_t));
  auto* next = static_cast<uint64_t*>(received.decoded_ids->data());
  for (const Segment& segment : segments) {
    RETURN_IF_ERROR(DecodeAscending(&bytes, absl::MakeSpan(next, segment.count())));
    next += segment.count();
  }
  if (!bytes.empty()) return Malformed("segments count fewer ids than there are");
  return static_cast<const char*>(received.decoded_ids->data());
}

// Copies the versions of a pull's ids to memory that workers may write. Null if the request has
// none.
absl::StatusOr<std::shared_ptr<Buffer>> CopyVersions(std::string_view versions, size_t num_ids) {
  if (versions.empty()) return std::shared_ptr<Buffer>();
  if (versions.size() != num_ids * sizeof(uint32_t)) {
    return Malformed("there must be as many versions as ids, or none");
  }
  auto copy = Buffer::Allocate(versions.size());
  std::memcpy(copy->data(), versions.data(), versions.size());
  return copy;
}

// Closes the gaps between the written rows. Returns the bytes of the written rows.
size_t CloseGaps(const std::vector<PullPart>& parts, const std::vector<size_t>& row_bytes,
                 char* rows) {
  char* end = rows;
  for (size_t part = 0; part < parts.size(); ++part) {
    for (size_t i = 0; i < parts[part].count; ++i) {
      if (parts[part].versions[i] == 0) continue;
      std::memmove(end, static_cast<const char*>(parts[part].rows) + i * row_bytes[part],
                   row_bytes[part]);
      end += row_bytes[part];
    }
  }
  return static_cast<size_t>(end - rows);
}

}  // namespace

void EmbeddingService::Register(rpc::Server& server) {
  const auto handle = [&](const char* method, rpc::MethodKind kind, auto member) {
    server.Handle("tandem.EmbeddingService", method, kind,
                  [this, member](rpc::Payload request, rpc::Reply reply) {
                    (this->*member)(std::move(request), std::move(reply));
                  });
  };
  handle("CreateTables", rpc::MethodKind::UNARY, &EmbeddingService::CreateTables);
  handle("Assign", rpc::MethodKind::UNARY, &EmbeddingService::Assign);
  handle("Read", rpc::MethodKind::UNARY, &EmbeddingService::Read);
  handle("Pull", rpc::MethodKind::STREAM, &EmbeddingService::Pull);
  handle("Push", rpc::MethodKind::STREAM, &EmbeddingService::Push);
  handle("PullPooled", rpc::MethodKind::STREAM, &EmbeddingService::PullPooled);
  handle("PushPooled", rpc::MethodKind::STREAM, &EmbeddingService::PushPooled);
  handle("GradientNorm", rpc::MethodKind::STREAM, &EmbeddingService::GradientNorm);
  handle("Commit", rpc::MethodKind::STREAM, &EmbeddingService::Commit);
  handle("Hash", rpc::MethodKind::UNARY, &EmbeddingService::Hash);
  handle("Statistics", rpc::MethodKind::UNARY, &EmbeddingService::Statistics);
  handle("Save", rpc::MethodKind::UNARY, &EmbeddingService::Save);
  handle("Load", rpc::MethodKind::UNARY, &EmbeddingService::Load);
  handle("TakeTrace", rpc::MethodKind::UNARY, &EmbeddingService::TakeTrace);
}

template <class Segments>
absl::StatusOr<size_t> EmbeddingService::CountRowBytes(const Segments& segments,
                                                       IdsFormat ids_format, size_t ids_bytes,
                                                       WireFormat format,
                                                       std::vector<size_t>* row_bytes) const {
  if (!IdsFormat_IsValid(ids_format))
    return absl::InvalidArgumentError(absl::StrCat("unknown ids_format ", int{ids_format}));
  if (!WireFormat_IsValid(format))
    return absl::InvalidArgumentError(absl::StrCat("unknown format of rows ", int{format}));
  row_bytes->reserve(static_cast<size_t>(segments.size()));
  const size_t id_bytes = ids_format == IDS_RAW ? sizeof(uint64_t) : 1;  // the least bytes of an id
  size_t ids_left = ids_bytes / id_bytes, ids = 0, total = 0;
  for (const Segment& segment : segments) {
    ASSIGN_OR_RETURN(const uint32_t dim, host_.Dim(segment.table()));
    if (segment.count() > ids_left) return Malformed("segments count more ids than there are");
    ids_left -= segment.count();
    // Cannot overflow before the limit is checked: the received bytes bound counts, and dim is at
    // most 2^16.
    row_bytes->push_back(WireBytes(format, dim));
    ids += segment.count();
    total += segment.count() * row_bytes->back();
    if (std::max(ids * sizeof(uint64_t), total) > kMaxMessageBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("more than ", kMaxMessageBytes,
                       " bytes of ids or of rows in one message; cut it into several"));
    }
  }
  if (ids_format == IDS_RAW && (ids_left != 0 || ids_bytes % sizeof(uint64_t) != 0)) {
    return Malformed("segments count fewer ids than there are");
  }
  return total;
}

void EmbeddingService::CreateTables(rpc::Payload payload, rpc::Reply reply) {
  const auto request = check_.Decode<CreateTablesRequest>(payload, Senders::TRAINERS);
  if (!request.ok()) return reply(request.status());
  host_.CreateTables({request->tables().begin(), request->tables().end()}, request->num_trainers(),
                     ReplyEmpty(std::move(reply)), request->consistency());
}

void EmbeddingService::Assign(rpc::Payload payload, rpc::Reply reply) {
  if (absl::Status status = StartAssign(payload, reply); !status.ok()) reply(status);
}

absl::Status EmbeddingService::StartAssign(rpc::Payload& payload, const rpc::Reply& reply) {
  RETURN_IF_ERROR(check_.CheckHeader(payload, Senders::TRAINERS));
  ASSIGN_OR_RETURN(const std::shared_ptr<Received> received, Receive(payload, {14, 15}));
  AssignRequest request;
  RETURN_IF_ERROR(RequestCheck::ParseFields(received->split.small_fields, kMaxFields, &request));
  const std::string_view ids = received->split.bytes_fields[0],
                         values = received->split.bytes_fields[1];
  if (Crc32c(Crc32c(0, ids.data(), ids.size()), values.data(), values.size()) !=
      request.payload_crc32c()) {
    return absl::InvalidArgumentError(
        "payload checksum of an assignment is wrong: damaged on its way");
  }
  ASSIGN_OR_RETURN(const size_t count, CountRows(ids.size(), request.width()));
  if (values.size() != count * request.width() * sizeof(float))
    return Malformed("values are not as many as ids and width say");
  host_.Assign(request.table(), ids.data(), count, values.data(), request.width(),
               [received, reply](absl::Status status) { ReplyEmpty(reply)(std::move(status)); });
  return absl::OkStatus();
}

void EmbeddingService::Read(rpc::Payload payload, rpc::Reply reply) {
  if (absl::Status status = StartRead(payload, reply); !status.ok()) reply(status);
}

absl::Status EmbeddingService::StartRead(rpc::Payload& payload, const rpc::Reply& reply) {
  RETURN_IF_ERROR(check_.CheckHeader(payload, Senders::ANY));
  ASSIGN_OR_RETURN(const std::shared_ptr<Received> received, Receive(payload, {15}));
  ReadRequest request;
  RETURN_IF_ERROR(RequestCheck::ParseFields(received->split.small_fields, kMaxFields, &request));
  const std::string_view ids = received->split.bytes_fields[0];
  RETURN_IF_ERROR(host_.CheckWidth(request.table(), request.width()));
  ASSIGN_OR_RETURN(const size_t count, CountRows(ids.size(), request.width()));
  auto values = Buffer::Allocate(count * request.width() * sizeof(float));
  host_.Read(request.table(), ids.data(), count, static_cast<float*>(values->data()),
             request.width(), [values, reply](absl::Status status) {
               if (!status.ok()) return reply(status);
               rpc::Payload message = Encode(ReadReply());
               rpc::AppendBytesField(message, 15, values->data(), values->num_bytes(), values);
               reply(std::move(message));
             });
  return absl::OkStatus();
}

void EmbeddingService::Pull(rpc::Payload payload, rpc::Reply reply) {
  if (absl::Status status = StartPull(payload, reply); !status.ok()) reply(status);
}

absl::Status EmbeddingService::StartPull(rpc::Payload& payload, const rpc::Reply& reply) {
  RETURN_IF_ERROR(check_.CheckHeader(payload, Senders::ANY));
  ASSIGN_OR_RETURN(const std::shared_ptr<Received> received, Receive(payload, {15, 16}));
  PullRequest request;
  RETURN_IF_ERROR(RequestCheck::ParseFields(received->split.small_fields, kMaxFields, &request));
  const WireFormat format = request.rows_format();
  std::vector<size_t> row_bytes;
  ASSIGN_OR_RETURN(const size_t total,
                   CountRowBytes(request.segments(), request.ids_format(),
                                 received->split.bytes_fields[0].size(), format, &row_bytes));
  ASSIGN_OR_RETURN(const char* next_ids,
                   ReadIds(request.segments(), request.ids_format(), *received));
  ASSIGN_OR_RETURN(const std::shared_ptr<Buffer> versions,
                   CopyVersions(received->split.bytes_fields[1], CountIds(request.segments())));
  auto rows = reply.Allocate(total);
  std::vector<PullPart> parts;
  parts.reserve(row_bytes.size());
  char* next_rows = static_cast<char*>(rows->data());
  uint32_t* next_versions =
      versions == nullptr ? nullptr : static_cast<uint32_t*>(versions->data());
  for (int i = 0; i < request.segments_size(); ++i) {
    const Segment& segment = request.segments(i);
    const size_t count = segment.count();
    parts.push_back(
        {segment.table(), count, next_ids, next_rows, next_versions, segment.read_bound(), format});
    if (versions != nullptr) next_versions += count;
    next_ids += count * sizeof(uint64_t);
    next_rows += count * row_bytes[static_cast<size_t>(i)];
  }
  std::optional<Caller> caller;
  if (request.header().sender().role() == TRAINER) caller = CallerOf(request.header());
  host_.Pull(
      caller, request.step(), request.create(), parts,
      [reply, rows, versions, parts, row_bytes,
       version = check_.shard_map_version()](absl::Status status) {
        if (!status.ok()) return reply(status);
        PullReply small;
        small.set_shard_map_version(version);
        rpc::Payload message = Encode(small);
        size_t num_bytes = rows->num_bytes();
        if (versions != nullptr) {
          num_bytes = CloseGaps(parts, row_bytes, static_cast<char*>(rows->data()));
          rpc::AppendBytesField(message, 14, versions->data(), versions->num_bytes(), versions);
        }
        rpc::AppendBytesField(message, 15, rows->data(), num_bytes, rows);
        reply(std::move(message));
      },
      request.header().trace_id());
  return absl::OkStatus();
}

void EmbeddingService::Push(rpc::Payload payload, rpc::Reply reply) {
  if (absl::Status status = StartPush(payload, reply); !status.ok()) reply(status);
}

absl::Status EmbeddingService::StartPush(rpc::Payload& payload, const rpc::Reply& reply) {
  RETURN_IF_ERROR(check_.CheckHeader(payload, Senders::TRAINERS));
  const auto received = std::make_shared<Received>();
  received->payload = std::move(payload);
  if (!rpc::SplitBytesFields(received->payload, {14}, 15, &received->split, &received->gradients,
                             kMaxSmallBytes))
    return NotSplit();
  PushRequest request;
  RETURN_IF_ERROR(RequestCheck::ParseFields(received->split.small_fields, kMaxFields, &request));
  const std::string_view ids = received->split.bytes_fields[0];
  std::vector<std::string_view> payload_pieces{ids};
  payload_pieces.insert(payload_pieces.end(), received->gradients.begin(),
                        received->gradients.end());
  RETURN_IF_ERROR(CheckPayload(request, payload_pieces));
  const WireFormat format = request.gradients_format();
  std::vector<size_t> row_bytes;
  ASSIGN_OR_RETURN(const size_t total, CountRowBytes(request.segments(), request.ids_format(),
                                                     ids.size(), format, &row_bytes));
  if (total != TotalBytes(received->gradients))
    return Malformed("gradients are not as long as segments say");
  ASSIGN_OR_RETURN(const char* next_ids,
                   ReadIds(request.segments(), request.ids_format(), *received));
  std::vector<PushPart> parts;
  parts.reserve(row_bytes.size());
  PieceReader gradients(received->gradients);
  for (int i = 0; i < request.segments_size(); ++i) {
    const size_t count = request.segments(i).count();
    parts.push_back({request.segments(i).table(), count, next_ids,
                     WireRows(gradients, format, row_bytes[static_cast<size_t>(i)], count)});
    next_ids += count * sizeof(uint64_t);
  }
  const Caller caller = CallerOf(request.header());
  PushPlace place{caller.trainer, request.step(), request.slice(), request.sequence(),
                  caller.incarnation};
  for (const CoveredPush& push : request.covered())
    place.covered.push_back({push.trainer(), push.incarnation(), push.sequence()});
  host_.Accumulate(place, parts, received, ReplyEmpty(reply), request.header().trace_id());
  return absl::OkStatus();
}

void EmbeddingService::PullPooled(rpc::Payload payload, rpc::Reply reply) {
  if (absl::Status status = pooled_.Pull(payload, reply); !status.ok()) reply(status);
}

void EmbeddingService::PushPooled(rpc::Payload payload, rpc::Reply reply) {
  if (absl::Status status = pooled_.Push(payload, reply); !status.ok()) reply(status);
}

void EmbeddingService::GradientNorm(rpc::Payload payload, rpc::Reply reply) {
  const auto request = check_.Decode<GradientNormRequest>(payload, Senders::TRAINERS);
  if (!request.ok()) return reply(request.status());
  host_.GradientNorm(
      CallerOf(request->header()), request->step(),
      [reply = std::move(reply)](absl::StatusOr<absl::uint128> norm) {
        if (!norm.ok()) return reply(norm.status());
        GradientNormReply message;
        message.set_squared_norm_high(absl::Uint128High64(*norm));
        message.set_squared_norm_low(absl::Uint128Low64(*norm));
        reply(Encode(message));
      },
      request->header().trace_id());
}

void EmbeddingService::Commit(rpc::Payload payload, rpc::Reply reply) {
  const auto request = check_.Decode<CommitRequest>(payload, Senders::TRAINERS);
  if (!request.ok()) return reply(request.status());
  host_.Commit(CallerOf(request->header()), ArgsOf(*request, request->step()),
               ReplyEmpty(std::move(reply)), request->header().trace_id());
}

void EmbeddingService::Hash(rpc::Payload payload, rpc::Reply reply) {
  const auto request = check_.Decode<HashRequest>(payload, Senders::ANY);
  if (!request.ok()) return reply(request.status());
  host_.Hash([reply = std::move(reply)](absl::StatusOr<HashResult> result) {
    if (!result.ok()) return reply(result.status());
    HashReply message;
    message.set_hash_high(absl::Uint128High64(result->hash));
    message.set_hash_low(absl::Uint128Low64(result->hash));
    message.set_num_rows(result->num_rows);
    reply(Encode(message));
  });
}

void EmbeddingService::Statistics(rpc::Payload payload, rpc::Reply reply) {
  const auto request = check_.Decode<StatisticsRequest>(payload, Senders::ANY);
  if (!request.ok()) return reply(request.status());
  host_.Statistics([reply = std::move(reply)](const absl::StatusOr<StatisticsReply>& statistics) {
    if (!statistics.ok()) return reply(statistics.status());
    reply(Encode(*statistics));
  });
}

void EmbeddingService::Save(rpc::Payload payload, rpc::Reply reply) {
  const auto request = check_.Decode<SaveRequest>(payload, Senders::TRAINERS);
  if (!request.ok()) return reply(request.status());
  if (absl::Status status = folders_.CheckSave(request->folder()); !status.ok())
    return reply(status);
  host_.Save(
      request->step(), request->folder(), request->header().job_epoch(),
      [reply = std::move(reply)](const absl::StatusOr<std::vector<SavedFile>>& files) {
        if (!files.ok()) return reply(files.status());
        SaveReply message;
        message.mutable_files()->Add(files->begin(), files->end());
        reply(Encode(message));
      },
      request->header().trace_id());
}

void EmbeddingService::TakeTrace(rpc::Payload payload, rpc::Reply reply) {
  const auto request = check_.Decode<TakeTraceRequest>(payload, Senders::ANY);
  if (!request.ok()) return reply(request.status());
  reply(Encode(rpc::AnswerTakeTrace(host_.tracer())));
}

void EmbeddingService::Load(rpc::Payload payload, rpc::Reply reply) {
  const auto request = check_.Decode<LoadRequest>(payload, Senders::TRAINERS, kMaxLoadFields);
  if (!request.ok()) return reply(request.status());
  if (absl::Status status = folders_.CheckLoad(request->folder()); !status.ok())
    return reply(status);
  host_.Load({.step = request->step(),
              .folder = request->folder(),
              .files = {request->files().begin(), request->files().end()},
              .shards = {request->shards().begin(), request->shards().end()},
              .job_epoch = request->header().job_epoch()},
             ReplyEmpty(std::move(reply)));
}

}  // namespace tandem::ps
