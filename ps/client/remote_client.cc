#include "ps/client/remote_client.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "kernels/base/check.h"
#include "kernels/base/crc32c.h"
#include "kernels/base/status_macros.h"
#include "kernels/memory/buffer.h"
#include "ps/client/operation.h"
#include "ps/client/resending_stream.h"
#include "ps/wire/message_cut.h"
#include "ps/wire/message_limits.h"
#include "ps/wire/pooled_cut.h"
#include "ps/wire/saturating.h"
#include "ps/wire/statistics.h"
#include "ps/wire/wire_rows.h"
#include "rpc/channel.h"
#include "rpc/payload.h"
#include "rpc/role_trace.h"
#include "rpc/shared/stream.h"

namespace tandem::ps {
namespace {

using rpc::Done;
using rpc::Future;
using rpc::Payload;

constexpr char kService[] = "/tandem.EmbeddingService/";
// Separates the random bits of gradients from the random bits of weights.
constexpr uint64_t kRoundingSalt = 0x6772616469656e74;
// Bytes that one step of the checksum covers.
constexpr size_t kChecksumBytes = size_t{12} << 10;

absl::Status Annotate(const absl::Status& status, const std::string& what, int server) {
  return absl::Status(status.code(), absl::StrCat(what, ": ps-", server, ": ", status.message()));
}

// A copyable promise for callbacks. The first Set wins; later ones do nothing.
template <class T>
class SharedPromise {
 public:
  // `span` ends when the promise is fulfilled.
  explicit SharedPromise(const ConcurrentSpan& span = {}) { state_->span = span; }

  const Future<T>& future() const { return state_->future; }
  void Set(absl::StatusOr<T> value) const {
    if (state_->taken.exchange(true)) return;
    state_->span.End();
    state_->promise.Set(std::move(value));
  }

 private:
  struct State {
    rpc::Promise<T> promise;
    const Future<T> future = promise.future();
    ConcurrentSpan span;
    std::atomic<bool> taken{false};
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

// Fulfils the promise when every server has answered, or with the first error.
std::function<void(absl::StatusOr<std::vector<Payload>>)> WhenAnswered(
    const SharedPromise<Done>& promise) {
  return [promise](absl::StatusOr<std::vector<Payload>> replies) {
    if (replies.ok())
      promise.Set(Done());
    else
      promise.Set(replies.status());
  };
}

// Accepts an answer without content.
absl::Status TakeNothing(const Payload&) { return absl::OkStatus(); }

// Runs `then` once: when all are done, or with the first error.
void WhenAll(const std::vector<Future<Done>>& futures, std::function<void(absl::Status)> then) {
  SharedPromise<Done> all;
  auto remaining = std::make_shared<std::atomic<size_t>>(futures.size());
  all.future().OnReady(
      [then = std::move(then)](const absl::StatusOr<Done>& done) { then(done.status()); });
  if (futures.empty()) all.Set(Done());
  for (const auto& future : futures) {
    future.OnReady([all, remaining](const absl::StatusOr<Done>& done) {
      if (!done.ok())
        all.Set(done.status());
      else if (remaining->fetch_sub(1) == 1)
        all.Set(Done());
    });
  }
}

// A Pull or Push, cut into messages.
struct Plan {
  std::vector<std::vector<OwnedIds>> split;  // [segment][server]
  WireFormat wire = WIRE_F32;
  std::vector<uint32_t> dims;     // [segment]
  std::vector<uint64_t> seeds;    // [segment], seeds of the tables
  std::vector<char> dense;        // [segment], 1 for a dense table
  std::vector<size_t> row_bytes;  // [segment], bytes of a row on the wire
  std::vector<CutMessage> messages;
  std::vector<int> messages_of_server;
  size_t num_bytes = 0;  // of ids and rows
};

// Returns the ids of a range, in order.
absl::Span<const uint64_t> IdsOf(const Plan& plan, const CutMessage& message,
                                 const IdRange& range) {
  const auto& owned = plan.split[range.segment][static_cast<size_t>(message.server)].ids;
  return absl::MakeConstSpan(owned).subspan(range.begin, range.end - range.begin);
}

struct GatheredIds {
  std::shared_ptr<Buffer> buffer;
  size_t num_bytes = 0;
};

// Gathers ids as differences. The buffer is null if some segment's ids do not ascend or little is
// saved.
GatheredIds GatherDifferences(const Plan& plan, const CutMessage& message) {
  const size_t room = message.num_ids * sizeof(uint64_t);
  GatheredIds gathered{Buffer::Allocate(room + kMaxIdBytes), 0};
  char* const begin = static_cast<char*>(gathered.buffer->data());
  char* end = begin;
  for (const IdRange& range : message.ranges) {
    end =
        EncodeAscending(IdsOf(plan, message, range), room - static_cast<size_t>(end - begin), end);
    if (end == nullptr) return {};
  }
  gathered.num_bytes = static_cast<size_t>(end - begin);
  return gathered;
}

GatheredIds GatherRaw(const Plan& plan, const CutMessage& message) {
  GatheredIds gathered{Buffer::Allocate(message.num_ids * sizeof(uint64_t)),
                       message.num_ids * sizeof(uint64_t)};
  char* next = static_cast<char*>(gathered.buffer->data());
  for (const IdRange& range : message.ranges) {
    const auto ids = IdsOf(plan, message, range);
    std::memcpy(next, ids.data(), ids.size() * sizeof(uint64_t));
    next += ids.size() * sizeof(uint64_t);
  }
  return gathered;
}

// Gathers the message's ids in one buffer. Describes their segments and format in `request`.
template <class Request, class Segments>
GatheredIds GatherIds(const Plan& plan, const CutMessage& message, const Segments& segments,
                      Request* request) {
  for (const IdRange& range : message.ranges) {
    Segment* segment = request->add_segments();
    segment->set_table(segments[range.segment].table);
    segment->set_count(range.end - range.begin);
  }
  GatheredIds differences = GatherDifferences(plan, message);
  if (differences.buffer == nullptr) return GatherRaw(plan, message);
  request->set_ids_format(IDS_DELTA);
  return differences;
}

// Rounding errors of the rows of dense tables. The next push adds them. A skipped step leaves them
// unchanged.
class Residuals {
 public:
  // Returns the row's error so far. The caller adds it and replaces it with the new error.
  float* Of(uint32_t table, uint64_t id, uint32_t dim) {
    Row& row = rows_[{table, id}];
    row.kept.resize(dim);
    if (row.next.empty()) {
      row.next = row.kept;
      open_.push_back({table, id});
    }
    return row.next.data();
  }
  void EndStep(bool skipped) {
    for (const Key& key : open_) {
      Row& row = rows_[key];
      if (!skipped) row.kept.swap(row.next);
      row.next.clear();
    }
    open_.clear();
  }

 private:
  using Key = std::pair<uint32_t, uint64_t>;  // table, id
  struct Row {
    std::vector<float> kept, next;  // next: of the open step; empty if nothing was pushed
  };
  absl::flat_hash_map<Key, Row> rows_;
  std::vector<Key> open_;
};

uint32_t Crc32cOf(uint32_t crc, const Payload& payload) {
  for (const Payload::Slice& slice : payload.slices()) crc = Crc32c(crc, slice.data, slice.size);
  return crc;
}

// Returns the message's gradients in place, without a copy. Empty if a copy is needed: for
// rounding, for gathering scattered rows, or without an owner.
Payload GradientsInPlace(const Plan& plan, const CutMessage& message,
                         const std::vector<PushSegment>& segments) {
  Payload gradients;
  for (const IdRange& range : message.ranges) {
    const PushSegment& segment = segments[range.segment];
    const OwnedIds& owned = plan.split[range.segment][static_cast<size_t>(message.server)];
    if (plan.wire != WIRE_F32 || segment.owner == nullptr || !owned.positions.empty()) return {};
    gradients.Append(segment.gradients + range.begin * plan.dims[range.segment],
                     (range.end - range.begin) * plan.row_bytes[range.segment], segment.owner);
  }
  return gradients;
}

// Copies the message's gradients into one buffer of the stream, rounded to the wire format. Unless
// `crc` is null, extends `*crc` over the copied gradients. `draw` makes random bits differ between
// steps, and between trainers that push the same row.
Payload GatherGradients(const Plan& plan, const CutMessage& message, uint64_t draw,
                        const std::vector<PushSegment>& segments, Residuals& residuals,
                        ResendingStream& stream, uint32_t* crc) {
  auto gradients = stream.Allocate(message.row_bytes);
  char* next = static_cast<char*>(gradients->data());
  // `crc` covers bytes up to here; pieces are small enough to be still in the nearest cache.
  const char* summed = next;
  const auto sum_up = [&] {
    if (crc != nullptr) *crc = Crc32c(*crc, summed, static_cast<size_t>(next - summed));
    summed = next;
  };
  for (const IdRange& range : message.ranges) {
    const uint32_t dim = plan.dims[range.segment];
    const size_t row_bytes = plan.row_bytes[range.segment];
    const OwnedIds& owned = plan.split[range.segment][static_cast<size_t>(message.server)];
    for (size_t i = range.begin; i < range.end; ++i, next += row_bytes) {
      const float* const gradient = segments[range.segment].gradients +
                                    (owned.positions.empty() ? i : owned.positions[i]) * dim;
      if (plan.wire == WIRE_F32) {
        std::memcpy(next, gradient, row_bytes);
      } else if (plan.dense[range.segment] != 0) {
        EncodeWithResidual(plan.wire, gradient, dim,
                           residuals.Of(segments[range.segment].table, owned.ids[i], dim), next);
      } else {
        const RandomKey key{plan.seeds[range.segment] ^ kRoundingSalt, owned.ids[i]};
        EncodeGradient(plan.wire, gradient, dim, key, draw, next);
      }
      if (static_cast<size_t>(next - summed) >= kChecksumBytes) sum_up();
    }
  }
  sum_up();
  Payload payload;
  payload.Append(gradients->data(), gradients->num_bytes(), gradients);
  return payload;
}

void SetCommit(const CommitArgs& args, CommitRequest* request) {
  request->set_gradient_scale(args.gradient_scale);
  request->set_skip(args.skip);
  for (const TableRateValue& rate : args.rates) {
    TableRate* added = request->add_rates();
    added->set_table(rate.table);
    added->set_learning_rate(rate.learning_rate);
  }
}

Payload EncodePush(const PushRequest& request, const GatheredIds& ids, const Payload& gradients) {
  Payload payload(request.SerializeAsString());
  rpc::AppendBytesField(payload, 14, ids.buffer->data(), ids.num_bytes, ids.buffer);
  rpc::AppendBytesField(payload, 15, gradients);
  return payload;
}

// Returns a function that encodes the push with its checksum.
std::function<Payload()> CheckedPush(PushRequest request, GatheredIds ids, Payload gradients) {
  return [request = std::move(request), ids = std::move(ids),
          gradients = std::move(gradients)]() mutable {
    request.set_payload_crc32c(Crc32cOf(Crc32c(0, ids.buffer->data(), ids.num_bytes), gradients));
    return EncodePush(request, ids, gradients);
  };
}

// True if the caller keeps rows of some segment.
bool HaveVersions(const std::vector<PullSegment>& segments) {
  return std::any_of(segments.begin(), segments.end(),
                     [](const PullSegment& segment) { return segment.versions != nullptr; });
}

// Returns the place in its segment of id `i` of a server's share.
size_t PlaceOf(const OwnedIds& owned, size_t i) {
  return owned.positions.empty() ? i : owned.positions[i];
}

// Visits the message's ids as visit(segment, place in it, dim).
template <class Visit>
void ForEachId(const Plan& plan, const CutMessage& message,
               const std::vector<PullSegment>& segments, const Visit& visit) {
  for (const IdRange& range : message.ranges) {
    const OwnedIds& owned = plan.split[range.segment][static_cast<size_t>(message.server)];
    for (size_t i = range.begin; i < range.end; ++i)
      visit(segments[range.segment], PlaceOf(owned, i), plan.dims[range.segment]);
  }
}

// Gathers the versions of the message's rows that the caller has. Puts the segments' read bounds
// into the request.
std::shared_ptr<Buffer> GatherVersions(const Plan& plan, const CutMessage& message,
                                       const std::vector<PullSegment>& segments,
                                       PullRequest* request) {
  for (size_t i = 0; i < message.ranges.size(); ++i) {
    request->mutable_segments(static_cast<int>(i))
        ->set_read_bound(segments[message.ranges[i].segment].read_bound);
  }
  auto versions = Buffer::Allocate(message.num_ids * sizeof(uint32_t));
  uint32_t* next = static_cast<uint32_t*>(versions->data());
  ForEachId(plan, message, segments, [&](const PullSegment& segment, size_t place, size_t) {
    *next++ = segment.versions == nullptr ? 0 : segment.versions[place];
  });
  return versions;
}

// Like ScatterRows, for a reply that leaves out rows that the caller has.
absl::Status ScatterChanged(const Plan& plan, const CutMessage& message,
                            const std::vector<PullSegment>& segments, Payload reply) {
  rpc::SplitMessage split;
  std::vector<std::string_view> pieces;
  if (!rpc::SplitBytesFields(reply, {14}, 15, &split, &pieces))
    return absl::InternalError("malformed reply");
  const std::string_view versions = split.bytes_fields[0];
  if (versions.size() != message.num_ids * sizeof(uint32_t)) {
    return absl::InternalError(absl::StrCat("answered ", versions.size(), " bytes of versions for ",
                                            message.num_ids, " ids"));
  }
  size_t expected = 0, widest = 0;
  bool unasked = false;
  // Copies the versions before checking, because the server may still write to the shared memory.
  std::vector<uint32_t> own_versions(message.num_ids);
  if (!own_versions.empty()) std::memcpy(own_versions.data(), versions.data(), versions.size());
  auto next_version = own_versions.begin();
  ForEachId(plan, message, segments, [&](const PullSegment& segment, size_t place, uint32_t dim) {
    const size_t row_bytes = WireBytes(plan.wire, dim);
    widest = std::max(widest, row_bytes);
    if (*next_version++ != 0)
      expected += row_bytes;
    else
      unasked |= segment.versions == nullptr || segment.versions[place] == 0;
  });
  if (const size_t answered = TotalBytes(pieces); unasked || answered != expected) {
    return absl::InternalError(absl::StrCat("answered ", answered, " bytes of rows, expected ",
                                            expected,
                                            unasked ? ", and left out rows that nobody has" : ""));
  }
  next_version = own_versions.begin();
  PieceReader rows(pieces);
  std::vector<char> joined(widest);
  ForEachId(plan, message, segments, [&](const PullSegment& segment, size_t place, uint32_t dim) {
    const uint32_t version = *next_version++;
    if (segment.versions != nullptr) segment.versions[place] = version;
    if (version == 0) return;
    DecodeRow(plan.wire, rows.Next(WireBytes(plan.wire, dim), joined.data()), dim,
              segment.rows + place * dim);
  });
  return absl::OkStatus();
}

absl::Status ScatterRows(const Plan& plan, const CutMessage& message,
                         const std::vector<PullSegment>& segments, Payload reply) {
  std::vector<std::string_view> pieces;
  if (!rpc::FindBytesField(reply, 15, &pieces)) return absl::InternalError("malformed reply");
  if (const size_t answered = TotalBytes(pieces); answered != message.row_bytes) {
    return absl::InternalError(
        absl::StrCat("answered ", answered, " bytes of rows, expected ", message.row_bytes));
  }
  PieceReader rows(pieces);
  std::vector<char> joined;
  for (const IdRange& range : message.ranges) {
    const uint32_t dim = plan.dims[range.segment];
    const size_t row_bytes = plan.row_bytes[range.segment];
    const OwnedIds& owned = plan.split[range.segment][static_cast<size_t>(message.server)];
    joined.resize(std::max(joined.size(), row_bytes));
    for (size_t i = range.begin; i < range.end; ++i) {
      float* const target =
          segments[range.segment].rows + (owned.positions.empty() ? i : owned.positions[i]) * dim;
      DecodeRow(plan.wire, rows.Next(row_bytes, joined.data()), dim, target);
    }
  }
  return absl::OkStatus();
}

// The messages of a call with bags, and a pull's answers.
struct PooledAnswers {
  explicit PooledAnswers(std::vector<PooledMessage> cut)
      : messages(std::move(cut)), parts(messages.size()), missing(messages.size()) {}

  absl::Status Take(size_t number, size_t dim, Payload reply) {
    std::vector<std::string_view> pieces;
    if (!rpc::FindBytesField(reply, 15, &pieces)) return absl::InternalError("malformed reply");
    std::vector<float>& part = parts[number];
    part.resize(messages[number].bags.size() * dim);
    size_t num_bytes = 0;
    for (const std::string_view piece : pieces) num_bytes += piece.size();
    if (num_bytes != part.size() * sizeof(float)) {
      return absl::InternalError(absl::StrCat("answered ", num_bytes, " bytes of bags, expected ",
                                              part.size() * sizeof(float)));
    }
    char* next = reinterpret_cast<char*>(part.data());
    for (const std::string_view piece : pieces) next = std::copy(piece.begin(), piece.end(), next);
    return absl::OkStatus();
  }
  void Sum(const Bags& bags, size_t dim, float* pooled) const {
    for (size_t number = 0; number < messages.size(); ++number) {
      const float* from = parts[number].data();
      for (const uint32_t bag : messages[number].bags) {
        for (size_t i = 0; i < dim; ++i) pooled[bag * dim + i] += *from++;
      }
    }
    ScalePooled(bags, dim, pooled, pooled);
  }

  const std::vector<PooledMessage> messages;
  std::vector<std::vector<float>> parts;  // [message], each written by one thread
  std::atomic<size_t> missing;
};

BagSegment SegmentOf(uint32_t table, const PooledMessage& message) {
  BagSegment segment;
  segment.set_table(table);
  segment.set_ids(message.ids.size());
  segment.set_bags(message.bags.size());
  segment.set_weighted(!message.weights.empty());
  return segment;
}

template <class T>
size_t SizeInBytes(const std::vector<T>& values) {
  return values.size() * sizeof(T);
}

// Appends counts, weights and ids of the bags as fields `first_field` to `first_field` + 2. `owner`
// keeps the message alive.
void AppendBags(Payload& payload, int first_field, const std::shared_ptr<const void>& owner,
                const PooledMessage& message) {
  rpc::AppendBytesField(payload, first_field, message.counts.data(), SizeInBytes(message.counts),
                        owner);
  rpc::AppendBytesField(payload, first_field + 1, message.weights.data(),
                        SizeInBytes(message.weights), owner);
  rpc::AppendBytesField(payload, first_field + 2, message.ids.data(), SizeInBytes(message.ids),
                        owner);
}

uint32_t CrcOfBags(const PooledMessage& message) {
  const uint32_t counts = Crc32c(0, message.counts.data(), SizeInBytes(message.counts));
  const uint32_t weights = Crc32c(counts, message.weights.data(), SizeInBytes(message.weights));
  return Crc32c(weights, message.ids.data(), SizeInBytes(message.ids));
}

// One message's share of a call on rows of a dense table: rows [begin, end) of its server's rows.
struct RowsMessage {
  const OwnedIds& owned;
  const size_t begin, end;

  size_t num_ids() const { return end - begin; }
  const uint64_t* ids() const { return owned.ids.data() + begin; }
  // Returns the place of the message's row `i` in the caller's array.
  size_t place(size_t i) const {
    return owned.positions.empty() ? begin + i : owned.positions[begin + i];
  }
};

Payload EncodeAssign(const RequestHeader& header, const RowsToAssign& rows,
                     const RowsMessage& part) {
  auto ids = Buffer::Allocate(part.num_ids() * sizeof(uint64_t));
  auto values = Buffer::Allocate(part.num_ids() * rows.width * sizeof(float));
  std::memcpy(ids->data(), part.ids(), ids->num_bytes());
  for (size_t i = 0; i < part.num_ids(); ++i) {
    std::memcpy(static_cast<float*>(values->data()) + i * rows.width,
                rows.values + part.place(i) * rows.width, rows.width * sizeof(float));
  }
  AssignRequest request;
  *request.mutable_header() = header;
  request.set_table(rows.table);
  request.set_width(static_cast<uint32_t>(rows.width));
  request.set_payload_crc32c(
      Crc32c(Crc32c(0, ids->data(), ids->num_bytes()), values->data(), values->num_bytes()));
  Payload payload(request.SerializeAsString());
  rpc::AppendBytesField(payload, 14, ids->data(), ids->num_bytes(), ids);
  rpc::AppendBytesField(payload, 15, values->data(), values->num_bytes(), values);
  return payload;
}

Payload EncodeRead(const RequestHeader& header, const RowsToRead& rows, const RowsMessage& part) {
  ReadRequest request;
  *request.mutable_header() = header;
  request.set_table(rows.table);
  request.set_width(static_cast<uint32_t>(rows.width));
  auto ids = Buffer::Allocate(part.num_ids() * sizeof(uint64_t));
  std::memcpy(ids->data(), part.ids(), ids->num_bytes());
  Payload payload(request.SerializeAsString());
  rpc::AppendBytesField(payload, 15, ids->data(), ids->num_bytes(), ids);
  return payload;
}

absl::Status DecodeRead(const RowsToRead& rows, const RowsMessage& part, Payload reply) {
  std::vector<std::string_view> pieces;
  if (!rpc::FindBytesField(reply, 15, &pieces)) return absl::InternalError("malformed reply");
  size_t num_bytes = 0;
  for (const std::string_view piece : pieces) num_bytes += piece.size();
  const size_t row_bytes = rows.width * sizeof(float);
  if (num_bytes != part.num_ids() * row_bytes) {
    return absl::InternalError(absl::StrCat("answered ", num_bytes, " bytes of rows, expected ",
                                            part.num_ids() * row_bytes));
  }
  PieceReader reader(pieces);
  std::vector<char> joined(row_bytes);
  for (size_t i = 0; i < part.num_ids(); ++i) {
    std::memcpy(rows.values + part.place(i) * rows.width, reader.Next(row_bytes, joined.data()),
                row_bytes);
  }
  return absl::OkStatus();
}

}  // namespace

struct RemoteClient::Core : std::enable_shared_from_this<Core> {
  Core(const std::vector<std::string>& addresses, Router router, RequestHeader header,
       RemoteClientOptions options)
      : router(std::move(router)), header(std::move(header)), options(options) {
    if (options.shared_memory) shared = std::make_shared<rpc::SharedStreams>(options.credentials);
    for (const std::string& address : addresses) {
      channels.push_back(std::make_shared<rpc::Channel>(address, options.credentials));
      const auto open = [this, channel = channels.back()](const char* method) {
        is_shared.push_back(std::make_shared<std::atomic<bool>>(false));
        return [channel, shared = shared, is_shared = is_shared.back(),
                name = absl::StrCat(kService, method)]() -> std::unique_ptr<rpc::ClientStream> {
          if (shared != nullptr) {
            auto stream = shared->Open(channel->address(), name);
            *is_shared = stream.ok();
            if (stream.ok()) return *std::move(stream);
          }
          return channel->OpenStream(name);
        };
      };
      pulls.push_back(ResendingStream::Create(open("Pull"), timer));
      pushes.push_back(ResendingStream::Create(open("Push"), timer));
      pooled_pulls.push_back(ResendingStream::Create(open("PullPooled"), timer));
      pooled_pushes.push_back(ResendingStream::Create(open("PushPooled"), timer));
      norms.push_back(ResendingStream::Create(open("GradientNorm"), timer));
      commits.push_back(ResendingStream::Create(open("Commit"), timer));
    }
  }

  template <class SegmentType>
  absl::StatusOr<std::shared_ptr<Plan>> MakePlan(const std::vector<SegmentType>& segments,
                                                 size_t message_bytes);
  std::shared_ptr<Operation> Start(std::string what, const Plan& plan, ConcurrentSpan span);
  // The bags cut into messages, and an operation that waits for all answers.
  struct PooledPlan {
    std::vector<PooledMessage> messages;
    std::shared_ptr<Operation> operation;  // null: nothing to send
  };
  absl::StatusOr<PooledPlan> PlanPooled(std::string what, const Bags& bags, size_t dim,
                                        ConcurrentSpan span);
  std::shared_ptr<Operation> Begin(std::string what, std::vector<int> messages_of_server,
                                   ConcurrentSpan span);
  // Begins an operation with one message for every server.
  std::shared_ptr<Operation> BeginAll(std::string what, ConcurrentSpan span) {
    return Begin(std::move(what), std::vector<int>(channels.size(), 1), std::move(span));
  }
  // Sends one of the operation's messages. `take` checks and takes its answer.
  static void Send(ResendingStream& stream, Payload payload,
                   const std::shared_ptr<Operation>& operation, int server,
                   std::function<absl::Status(Payload)> take,
                   std::function<Payload()> checked = nullptr);
  // Sends the same request to every server once all of `before` are done. Sends nothing if one
  // fails, and fails with the first error. The returned future completes after the sending.
  Future<Done> SendAll(const std::vector<std::shared_ptr<ResendingStream>>& streams,
                       const std::vector<Future<Done>>& before, std::string request,
                       const std::shared_ptr<Operation>& operation,
                       const std::function<absl::Status(Payload)>& take);
  RequestHeader HeaderOf(const ConcurrentSpan& span) const {
    RequestHeader traced = header;
    traced.set_trace_id(span.trace_id());
    return traced;
  }
  // Sends requests[i] to server i. `then` runs once, with all replies in order or the first error.
  void CallEach(const char* method, std::string what, const std::vector<Payload>& requests,
                absl::Time deadline,
                std::function<void(absl::StatusOr<std::vector<Payload>>)> then);
  // Sends the same request to every server.
  void CallAll(const char* method, std::string what, std::string request, absl::Time deadline,
               std::function<void(absl::StatusOr<std::vector<Payload>>)> then) {
    const std::vector<Payload> requests(channels.size(), Payload(std::move(request)));
    CallEach(method, std::move(what), requests, deadline, std::move(then));
  }

  // Calls for rows of a dense table in messages of bounded size, one per server at a time. Memory
  // is therefore bounded for any number of rows.
  absl::Status CallForRows(const char* method, uint32_t table, absl::Span<const uint64_t> ids,
                           size_t width, absl::Time deadline,
                           const std::function<Payload(const RowsMessage&)>& encode,
                           const std::function<absl::Status(const RowsMessage&, Payload)>& decode);

  const Router router;
  const RequestHeader header;
  const RemoteClientOptions options;
  const std::shared_ptr<Timer> timer = std::make_shared<Timer>();
  std::shared_ptr<rpc::SharedStreams> shared;           // null: gRPC only
  std::vector<std::shared_ptr<rpc::Channel>> channels;  // per server, like the streams
  std::vector<std::shared_ptr<ResendingStream>> pulls, pushes, pooled_pulls, pooled_pushes, norms,
      commits;
  // [server][stream]: true if that stream, when last opened, shared memory.
  std::vector<std::shared_ptr<std::atomic<bool>>> is_shared;
  std::map<uint32_t, TableSpec> specs;  // by table number; written by CreateTables
  Residuals residuals;                  // used by the caller's thread
};

template <class SegmentType>
absl::StatusOr<std::shared_ptr<Plan>> RemoteClient::Core::MakePlan(
    const std::vector<SegmentType>& segments, size_t message_bytes) {
  auto plan = std::make_shared<Plan>();
  plan->wire = options.wire;
  for (const SegmentType& segment : segments) {
    const auto spec = specs.find(segment.table);
    if (spec == specs.end())
      return absl::InvalidArgumentError(absl::StrCat("there is no table ", segment.table));
    ASSIGN_OR_RETURN(
        std::vector<OwnedIds> owned,
        router.Split(segment.table, spec->second.name(), segment.ids.data(), segment.ids.size()));
    plan->split.push_back(std::move(owned));
    plan->dims.push_back(spec->second.dim());
    plan->seeds.push_back(spec->second.seed());
    plan->dense.push_back(spec->second.dense());
    plan->row_bytes.push_back(WireBytes(plan->wire, spec->second.dim()));
    plan->num_bytes += segment.ids.size() * (sizeof(uint64_t) + plan->row_bytes.back());
  }
  plan->messages = CutMessages(plan->split, plan->row_bytes, message_bytes);
  plan->messages_of_server.resize(channels.size());
  for (const CutMessage& message : plan->messages)
    ++plan->messages_of_server[static_cast<size_t>(message.server)];
  return plan;
}

std::shared_ptr<Operation> RemoteClient::Core::Start(std::string what, const Plan& plan,
                                                     ConcurrentSpan span) {
  span.AddBytes(static_cast<double>(plan.num_bytes));
  return Begin(std::move(what), plan.messages_of_server, std::move(span));
}

std::shared_ptr<Operation> RemoteClient::Core::Begin(std::string what,
                                                     std::vector<int> messages_of_server,
                                                     ConcurrentSpan span) {
  auto operation =
      std::make_shared<Operation>(std::move(what), std::move(messages_of_server), std::move(span));
  const std::weak_ptr<Operation> weak = operation;
  const Timer::Key key =
      timer->Schedule(absl::Now() + options.timeout, [weak, after = options.timeout] {
        if (const auto late = weak.lock()) late->TimeOut(after);
      });
  operation->future().OnReady(
      [timer = timer, key](const absl::StatusOr<Done>&) { timer->Cancel(key); });
  return operation;
}

void RemoteClient::Core::Send(ResendingStream& stream, Payload payload,
                              const std::shared_ptr<Operation>& operation, int server,
                              std::function<absl::Status(Payload)> take,
                              std::function<Payload()> checked) {
  stream.Send({std::move(payload), [operation] { return operation->wanted(); },
               [operation, server, take = std::move(take)](absl::StatusOr<Payload> answer) {
                 if (!operation->Enter()) return;
                 absl::Status status = answer.status();
                 if (status.ok()) status = take(*std::move(answer));
                 if (!status.ok()) status = Annotate(status, operation->what(), server);
                 operation->Leave(server, std::move(status));
               },
               std::move(checked)});
}

Future<Done> RemoteClient::Core::SendAll(
    const std::vector<std::shared_ptr<ResendingStream>>& streams,
    const std::vector<Future<Done>>& before, std::string request,
    const std::shared_ptr<Operation>& operation, const std::function<absl::Status(Payload)>& take) {
  SharedPromise<Done> sent;
  WhenAll(before, [streams, operation, take, sent,
                   request = std::move(request)](const absl::Status& status) {
    if (!status.ok()) operation->Fail(status);
    for (size_t server = 0; status.ok() && server < streams.size(); ++server) {
      Send(*streams[server], Payload(request), operation, static_cast<int>(server), take);
    }
    sent.Set(Done());
  });
  return sent.future();
}

absl::StatusOr<RemoteClient::Core::PooledPlan> RemoteClient::Core::PlanPooled(std::string what,
                                                                              const Bags& bags,
                                                                              size_t dim,
                                                                              ConcurrentSpan span) {
  const auto spec = specs.find(bags.table);
  if (spec == specs.end())
    return absl::InvalidArgumentError(absl::StrCat("there is no table ", bags.table));
  TANDEM_CHECK_EQ(spec->second.dim(), dim);
  PooledPlan plan;
  ASSIGN_OR_RETURN(plan.messages, CutBags(bags, router, dim, options.message_bytes));
  std::vector<int> messages_of_server(channels.size());
  for (const PooledMessage& message : plan.messages) {
    ++messages_of_server[static_cast<size_t>(message.server)];
    span.AddBytes(static_cast<double>(message.ids.size() * sizeof(uint64_t) +
                                      message.bags.size() * dim * sizeof(float)));
  }
  if (!plan.messages.empty())
    plan.operation = Begin(std::move(what), std::move(messages_of_server), std::move(span));
  return plan;
}

void RemoteClient::Core::CallEach(const char* method, std::string what,
                                  const std::vector<Payload>& requests, absl::Time deadline,
                                  std::function<void(absl::StatusOr<std::vector<Payload>>)> then) {
  struct Replies {
    absl::Mutex mutex;
    std::vector<Payload> payloads;
    size_t missing;
    bool ended = false;
  };
  auto replies = std::make_shared<Replies>();
  replies->payloads.resize(channels.size());
  replies->missing = channels.size();
  const rpc::CallOptions call_options{deadline - absl::Now(), /*idempotent=*/true};
  for (size_t server = 0; server < channels.size(); ++server) {
    channels[server]
        ->Call(absl::StrCat(kService, method), requests[server], call_options)
        .OnReady([replies, then, what, server](const absl::StatusOr<Payload>& reply) {
          {
            absl::MutexLock lock(&replies->mutex);
            if (replies->ended) return;
            if (reply.ok()) replies->payloads[server] = *reply;
            replies->ended = --replies->missing == 0 || !reply.ok();
            if (!replies->ended) return;
          }
          if (!reply.ok()) return then(Annotate(reply.status(), what, static_cast<int>(server)));
          then(std::move(replies->payloads));
        });
  }
}

absl::Status RemoteClient::Core::CallForRows(
    const char* method, uint32_t table, absl::Span<const uint64_t> ids, size_t width,
    absl::Time deadline, const std::function<Payload(const RowsMessage&)>& encode,
    const std::function<absl::Status(const RowsMessage&, Payload)>& decode) {
  const auto spec = specs.find(table);
  if (spec == specs.end())
    return absl::InvalidArgumentError(absl::StrCat("there is no table ", table));
  ASSIGN_OR_RETURN(const std::vector<OwnedIds> split,
                   router.Split(table, spec->second.name(), ids.data(), ids.size()));
  const std::string what = absl::StrCat(method, " of table ", spec->second.name());
  const size_t at_once = std::max(size_t{1}, options.message_bytes / CallBytes(1, width));
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
      calls.emplace_back(
          server, channels[server]->Call(absl::StrCat(kService, method), encode(part_of(server)),
                                         {deadline - absl::Now(), /*idempotent=*/true}));
    }
    for (auto& [server, call] : calls) {
      // The calls carry the deadline. The extra second lets the answer come through.
      absl::StatusOr<Payload> reply = call.Wait(deadline + absl::Seconds(1));
      absl::Status status = reply.status();
      if (status.ok()) status = decode(part_of(server), *std::move(reply));
      if (!status.ok()) return Annotate(status, what, static_cast<int>(server));
    }
  }
  return absl::OkStatus();
}

RemoteClient::RemoteClient(const std::vector<std::string>& addresses, Router router,
                           RequestHeader header, uint32_t num_trainers, RemoteClientOptions options)
    : num_trainers_(num_trainers) {
  TANDEM_CHECK_EQ(router.num_owners(), static_cast<int>(addresses.size()));
  core_ = std::make_shared<Core>(addresses, std::move(router), std::move(header), options);
}

RemoteClient::~RemoteClient() {
  Abort(absl::CancelledError("the client was closed"));
  core_->timer->Stop();
}

absl::Status RemoteClient::CreateTables(const std::vector<TableSpec>& tables,
                                        absl::Duration timeout) {
  CreateTablesRequest request;
  *request.mutable_header() = core_->header;
  request.mutable_tables()->Add(tables.begin(), tables.end());
  request.set_num_trainers(num_trainers_);
  *request.mutable_consistency() = core_->options.consistency;
  SharedPromise<Done> created;
  const absl::Time deadline = absl::Now() + timeout;
  core_->CallAll("CreateTables", "create tables", request.SerializeAsString(), deadline,
                 WhenAnswered(created));
  // The calls carry the deadline. The extra second lets the answer come through.
  RETURN_IF_ERROR(created.future().Wait(deadline + absl::Seconds(1)).status());
  for (const TableSpec& spec : tables) core_->specs[spec.number()] = spec;
  return absl::OkStatus();
}

absl::Status RemoteClient::Assign(const RowsToAssign& rows, absl::Time deadline) {
  return core_->CallForRows(
      "Assign", rows.table, rows.ids, rows.width, deadline,
      [&](const RowsMessage& part) { return EncodeAssign(core_->header, rows, part); },
      [](const RowsMessage&, const Payload&) { return absl::OkStatus(); });
}

absl::Status RemoteClient::Read(const RowsToRead& rows, absl::Time deadline) {
  return core_->CallForRows(
      "Read", rows.table, rows.ids, rows.width, deadline,
      [&](const RowsMessage& part) { return EncodeRead(core_->header, rows, part); },
      [&](const RowsMessage& part, Payload reply) {
        return DecodeRead(rows, part, std::move(reply));
      });
}

ConcurrentSpan RemoteClient::TraceCall(SpanKind kind, const char* name, uint64_t step) {
  return tracer_.Begin(core_->header.sender().rank(), kind, name, step);
}

Future<Done> RemoteClient::Pull(uint64_t step, bool create, std::vector<PullSegment> segments) {
  const ConcurrentSpan span = TraceCall(SpanKind::PULL, "pull", step);
  const auto made = core_->MakePlan(segments, core_->options.message_bytes);
  if (!made.ok()) return Future<Done>::Ready(made.status());
  const std::shared_ptr<const Plan> plan = *made;
  if (plan->messages.empty()) return Future<Done>::Ready(Done());
  const auto operation = core_->Start(absl::StrCat("pull for step ", step), *plan, span);
  const auto targets = std::make_shared<const std::vector<PullSegment>>(std::move(segments));
  const bool changed_only = HaveVersions(*targets);
  const auto take = changed_only ? ScatterChanged : ScatterRows;
  for (const CutMessage& message : plan->messages) {
    PullRequest request;
    *request.mutable_header() = core_->HeaderOf(span);
    request.set_step(step);
    request.set_create(create);
    request.set_rows_format(plan->wire);
    const GatheredIds ids = GatherIds(*plan, message, *targets, &request);
    const auto versions =
        changed_only ? GatherVersions(*plan, message, *targets, &request) : nullptr;
    Payload payload(request.SerializeAsString());
    rpc::AppendBytesField(payload, 15, ids.buffer->data(), ids.num_bytes, ids.buffer);
    if (changed_only)
      rpc::AppendBytesField(payload, 16, versions->data(), versions->num_bytes(), versions);
    Core::Send(*core_->pulls[static_cast<size_t>(message.server)], std::move(payload), operation,
               message.server, [plan, targets, take, &message](Payload answer) {
                 return take(*plan, message, *targets, std::move(answer));
               });
  }
  return operation->future();
}

PushName RemoteClient::NamePush() {
  return {core_->header.sender().rank(), core_->header.sender().incarnation(), next_sequence_++};
}

Future<Done> RemoteClient::Push(uint64_t step, uint32_t slice, std::vector<PushSegment> segments) {
  return SendPush(step, slice, segments, {});
}

Future<Done> RemoteClient::PushMerged(uint64_t step, const std::vector<PushName>& names,
                                      std::vector<PushSegment> segments) {
  return SendPush(step, /*slice=*/0, segments, names);
}

Future<Done> RemoteClient::SendPush(uint64_t step, uint32_t slice,
                                    const std::vector<PushSegment>& segments,
                                    const std::vector<PushName>& merged, const CommitArgs* commit) {
  const ConcurrentSpan span = TraceCall(SpanKind::PUSH, "push", step);
  // Sends a merged push as one message per server, because a server takes each name once per
  // virtual shard.
  const size_t message_bytes =
      merged.empty() ? core_->options.message_bytes : std::numeric_limits<size_t>::max();
  const auto plan = core_->MakePlan(segments, message_bytes);
  if (!plan.ok()) return pushes_.emplace_back(Future<Done>::Ready(plan.status()));
  if ((*plan)->messages.empty()) return Future<Done>::Ready(Done());
  const auto operation = core_->Start(
      absl::StrCat(commit == nullptr ? "push for step " : "push and commit of step ", step), **plan,
      span);
  for (const CutMessage& message : (*plan)->messages) {
    const size_t server = static_cast<size_t>(message.server);
    PushRequest request;
    *request.mutable_header() = core_->HeaderOf(span);
    request.set_sequence(merged.empty() ? next_sequence_++ : merged[0].sequence);
    for (size_t i = 1; i < merged.size(); ++i) {
      CoveredPush* const push = request.add_covered();
      push->set_trainer(merged[i].trainer);
      push->set_incarnation(merged[i].incarnation);
      push->set_sequence(merged[i].sequence);
    }
    request.set_step(step);
    request.set_slice(slice);
    request.set_gradients_format((*plan)->wire);
    if (commit != nullptr) SetCommit(*commit, request.mutable_commit());
    const GatheredIds ids = GatherIds(**plan, message, segments, &request);
    ResendingStream& stream = *core_->pushes[server];
    const bool checked = !stream.shares_memory();
    uint32_t crc = checked ? Crc32c(0, ids.buffer->data(), ids.num_bytes) : 0;
    Payload gradients = GradientsInPlace(**plan, message, segments);
    if (gradients.size() == 0) {
      gradients = GatherGradients(**plan, message, step ^ uint64_t{slice} << 32, segments,
                                  core_->residuals, stream, checked ? &crc : nullptr);
    } else if (checked) {
      crc = Crc32cOf(crc, gradients);
    }
    if (checked) request.set_payload_crc32c(crc);
    Payload payload = EncodePush(request, ids, gradients);
    Core::Send(stream, std::move(payload), operation, message.server, TakeNothing,
               checked ? nullptr : CheckedPush(std::move(request), ids, gradients));
  }
  return pushes_.emplace_back(operation->future());
}

Future<Done> RemoteClient::PullPooled(uint64_t step, bool create, const Bags& bags, size_t dim,
                                      float* pooled) {
  const ConcurrentSpan span = TraceCall(SpanKind::PULL, "pull_pooled", step);
  auto plan = core_->PlanPooled(absl::StrCat("pooled pull for step ", step), bags, dim, span);
  if (!plan.ok()) return Future<Done>::Ready(plan.status());
  std::fill(pooled, pooled + bags.size() * dim, 0.0f);
  if (plan->operation == nullptr) return Future<Done>::Ready(Done());
  const auto answers = std::make_shared<PooledAnswers>(std::move(plan->messages));
  for (size_t number = 0; number < answers->messages.size(); ++number) {
    const PooledMessage& message = answers->messages[number];
    PullPooledRequest request;
    *request.mutable_header() = core_->HeaderOf(span);
    request.set_step(step);
    request.set_create(create);
    *request.add_segments() = SegmentOf(bags.table, message);
    Payload payload(request.SerializeAsString());
    AppendBags(payload, 13, answers, message);
    Core::Send(*core_->pooled_pulls[static_cast<size_t>(message.server)], std::move(payload),
               plan->operation, message.server,
               [answers, number, bags, dim, pooled](Payload answer) -> absl::Status {
                 RETURN_IF_ERROR(answers->Take(number, dim, std::move(answer)));
                 // Parts add up in the order of the messages, whichever answer came last.
                 if (answers->missing.fetch_sub(1) == 1) answers->Sum(bags, dim, pooled);
                 return absl::OkStatus();
               });
  }
  return plan->operation->future();
}

Future<Done> RemoteClient::PushPooled(uint64_t step, uint32_t slice, const Bags& bags, size_t dim,
                                      const float* gradients) {
  const ConcurrentSpan span = TraceCall(SpanKind::PUSH, "push_pooled", step);
  auto plan = core_->PlanPooled(absl::StrCat("pooled push for step ", step), bags, dim, span);
  if (!plan.ok()) return pushes_.emplace_back(Future<Done>::Ready(plan.status()));
  if (plan->operation == nullptr) return Future<Done>::Ready(Done());
  std::vector<float> of_sums(bags.size() * dim);
  ScalePooled(bags, dim, gradients, of_sums.data());
  const auto answers = std::make_shared<PooledAnswers>(std::move(plan->messages));
  for (const PooledMessage& message : answers->messages) {
    PushPooledRequest request;
    *request.mutable_header() = core_->HeaderOf(span);
    request.set_sequence(next_sequence_++);
    request.set_step(step);
    request.set_slice(slice);
    *request.add_segments() = SegmentOf(bags.table, message);
    const auto of_bags = Buffer::Allocate(message.bags.size() * dim * sizeof(float));
    float* next = static_cast<float*>(of_bags->data());
    for (const uint32_t bag : message.bags)
      next = std::copy_n(of_sums.data() + bag * dim, dim, next);
    auto encode = [answers, &message, of_bags,
                   request = std::move(request)](bool with_checksum) mutable {
      if (with_checksum)
        request.set_payload_crc32c(
            Crc32c(CrcOfBags(message), of_bags->data(), of_bags->num_bytes()));
      Payload payload(request.SerializeAsString());
      AppendBags(payload, 12, answers, message);
      rpc::AppendBytesField(payload, 15, of_bags->data(), of_bags->num_bytes(), of_bags);
      return payload;
    };
    ResendingStream& stream = *core_->pooled_pushes[static_cast<size_t>(message.server)];
    const bool checked = !stream.shares_memory();
    Payload payload = encode(checked);
    std::function<Payload()> encode_checked;
    if (!checked) encode_checked = [encode = std::move(encode)]() mutable { return encode(true); };
    Core::Send(stream, std::move(payload), plan->operation, message.server, TakeNothing,
               std::move(encode_checked));
  }
  return pushes_.emplace_back(plan->operation->future());
}

Future<absl::uint128> RemoteClient::GradientNorm(uint64_t step) {
  const ConcurrentSpan span = TraceCall(SpanKind::COMMIT, "gradient_norm", step);
  GradientNormRequest request;
  *request.mutable_header() = core_->HeaderOf(span);
  request.set_step(step);
  struct Sum {
    SharedPromise<absl::uint128> norm;
    absl::Mutex mutex;
    absl::uint128 total ABSL_GUARDED_BY(mutex) = 0;
  };
  const auto sum = std::make_shared<Sum>();
  const auto operation = core_->BeginAll(absl::StrCat("gradient norm of step ", step), span);
  operation->future().OnReady([sum](const absl::StatusOr<Done>& done) {
    if (!done.ok()) return sum->norm.Set(done.status());
    absl::ReleasableMutexLock lock(&sum->mutex);
    const absl::uint128 total = sum->total;
    lock.Release();
    sum->norm.Set(total);
  });
  core_->SendAll(core_->norms, pushes_, request.SerializeAsString(), operation,
                 [sum](Payload payload) -> absl::Status {
                   const std::string_view bytes = payload.Flatten();
                   GradientNormReply reply;
                   if (!reply.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
                     return absl::InternalError("malformed reply");
                   absl::MutexLock lock(&sum->mutex);
                   sum->total = SaturatingAdd(
                       sum->total,
                       absl::MakeUint128(reply.squared_norm_high(), reply.squared_norm_low()));
                   return absl::OkStatus();
                 });
  return sum->norm.future();
}

Future<Done> RemoteClient::Commit(const CommitArgs& args) {
  core_->residuals.EndStep(args.skip);
  const ConcurrentSpan span = TraceCall(SpanKind::COMMIT, "commit", args.step);
  CommitRequest request;
  *request.mutable_header() = core_->HeaderOf(span);
  request.set_step(args.step);
  SetCommit(args, &request);
  const auto operation = core_->BeginAll(absl::StrCat("commit of step ", args.step), span);
  // Waits for the previous commit to be sent, because its pushes may still be in flight.
  std::vector<Future<Done>> before = std::exchange(pushes_, {});
  before.push_back(commit_sent_);
  commit_sent_ =
      core_->SendAll(core_->commits, before, request.SerializeAsString(), operation, TakeNothing);
  return commit_done_ = operation->future();
}

bool RemoteClient::CanCommitWith(const std::vector<PushSegment>& segments) const {
  // One stream keeps order, but a push may overtake a commit on the commit stream. A commit that
  // failed here may still be in flight too.
  if (core_->pushes.size() > 1 || !pushes_.empty() || !commit_done_.Wait(absl::InfinitePast()).ok())
    return false;
  size_t num_ids = 0, num_bytes = 0;
  for (const PushSegment& segment : segments) {
    const auto spec = core_->specs.find(segment.table);
    if (spec == core_->specs.end()) return false;
    num_ids += segment.ids.size();
    num_bytes += segment.ids.size() *
                 (sizeof(uint64_t) + WireBytes(core_->options.wire, spec->second.dim()));
  }
  return num_ids > 0 && num_bytes <= core_->options.message_bytes &&
         segments.size() <= kMaxSegments;
}

Future<Done> RemoteClient::PushAndCommit(uint32_t slice, std::vector<PushSegment> segments,
                                         const CommitArgs& args) {
  if (!CanCommitWith(segments)) return RowClient::PushAndCommit(slice, std::move(segments), args);
  const Future<Done> done = SendPush(args.step, slice, segments, {}, &args);
  core_->residuals.EndStep(args.skip);
  pushes_.clear();
  SharedPromise<Done> sent;
  done.OnReady([sent](const absl::StatusOr<Done>&) { sent.Set(Done()); });
  commit_sent_ = sent.future();
  return done;
}

Future<HashResult> RemoteClient::Hash() {
  HashRequest request;
  *request.mutable_header() = core_->header;
  SharedPromise<HashResult> hash;
  core_->CallAll("Hash", "hash", request.SerializeAsString(), absl::Now() + core_->options.timeout,
                 [hash](absl::StatusOr<std::vector<Payload>> replies) {
                   if (!replies.ok()) return hash.Set(replies.status());
                   HashResult total;
                   for (Payload& payload : *replies) {
                     const std::string_view bytes = payload.Flatten();
                     HashReply reply;
                     if (!reply.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
                       return hash.Set(absl::InternalError("malformed reply to a hash"));
                     }
                     total.hash += absl::MakeUint128(reply.hash_high(), reply.hash_low());
                     total.num_rows += reply.num_rows();
                   }
                   hash.Set(total);
                 });
  return hash.future();
}

Future<StatisticsReply> RemoteClient::Statistics() {
  StatisticsRequest request;
  *request.mutable_header() = core_->header;
  SharedPromise<StatisticsReply> statistics;
  core_->CallAll(
      "Statistics", "statistics", request.SerializeAsString(), absl::Now() + core_->options.timeout,
      [statistics](absl::StatusOr<std::vector<Payload>> replies) {
        if (!replies.ok()) return statistics.Set(replies.status());
        StatisticsReply total;
        for (Payload& payload : *replies) {
          const std::string_view bytes = payload.Flatten();
          StatisticsReply reply;
          if (!reply.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
            return statistics.Set(absl::InternalError("malformed reply to a call for statistics"));
          }
          MergeStatistics(reply, &total);
        }
        statistics.Set(std::move(total));
      });
  return statistics.future();
}

Future<std::vector<SavedFile>> RemoteClient::Save(uint64_t step, const std::string& folder,
                                                  absl::Time deadline) {
  const ConcurrentSpan span = TraceCall(SpanKind::CHECKPOINT, "save", step);
  SaveRequest request;
  *request.mutable_header() = core_->HeaderOf(span);
  request.set_step(step);
  request.set_folder(folder);
  SharedPromise<std::vector<SavedFile>> saved(span);
  core_->CallAll("Save", absl::StrCat("save after step ", step), request.SerializeAsString(),
                 deadline, [saved](absl::StatusOr<std::vector<Payload>> replies) {
                   if (!replies.ok()) return saved.Set(replies.status());
                   std::vector<SavedFile> files;
                   for (Payload& payload : *replies) {
                     const std::string_view bytes = payload.Flatten();
                     SaveReply reply;
                     if (!reply.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
                       return saved.Set(absl::InternalError("malformed reply to a save"));
                     }
                     files.insert(files.end(), reply.files().begin(), reply.files().end());
                   }
                   saved.Set(std::move(files));
                 });
  return saved.future();
}

int RemoteClient::num_shared() const {
  int count = 0;
  // Streams per server.
  const size_t num_streams = core_->is_shared.size() / core_->channels.size();
  for (size_t i = 0; i < core_->is_shared.size(); i += num_streams) {
    bool any = false;
    for (size_t stream = i; stream < i + num_streams; ++stream) any |= *core_->is_shared[stream];
    count += any;
  }
  return count;
}

absl::StatusOr<std::vector<RoleTrace>> RemoteClient::TakeTraces(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  std::vector<RoleTrace> traces;
  for (size_t server = 0; server < core_->channels.size(); ++server) {
    auto trace = rpc::CallTakeTrace(*core_->channels[server], "tandem.EmbeddingService",
                                    core_->header, absl::StrCat("ps-", server), deadline);
    if (!trace.ok()) return Annotate(trace.status(), "take trace", static_cast<int>(server));
    traces.push_back(*std::move(trace));
  }
  return traces;
}

Future<Done> RemoteClient::Load(uint64_t step, const std::string& folder,
                                const std::vector<std::string>& files, absl::Time deadline) {
  LoadRequest request;
  *request.mutable_header() = core_->header;
  request.set_step(step);
  request.set_folder(folder);
  request.mutable_files()->Add(files.begin(), files.end());
  std::vector<Payload> requests;
  for (int server = 0; server < core_->router.num_owners(); ++server) {
    const std::vector<ShardRange> shards = core_->router.ShardsOf(server);
    request.mutable_shards()->Assign(shards.begin(), shards.end());
    requests.emplace_back(request.SerializeAsString());
  }
  SharedPromise<Done> loaded;
  core_->CallEach("Load", absl::StrCat("load of step ", step), requests, deadline,
                  WhenAnswered(loaded));
  return loaded.future();
}

void RemoteClient::Abort(absl::Status reason) {
  for (const auto* streams : {&core_->pulls, &core_->pushes, &core_->pooled_pulls,
                              &core_->pooled_pushes, &core_->norms, &core_->commits}) {
    for (const auto& stream : *streams) stream->Close(reason);
  }
  for (const auto& channel : core_->channels) channel->Abort(reason);
}

}  // namespace tandem::ps
