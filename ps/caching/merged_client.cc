#include "ps/caching/merged_client.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string_view>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "ps/caching/merged_rows.h"
#include "ps/wire/value_guard.h"

namespace tandem::ps {
namespace {

using rpc::Done;
using rpc::Future;

// An all-to-all buffer is a header and blocks. Behind each block header lie ids u64[count] and
// gradients f32[count][dim]. The byte order is the host's. Every part starts at a multiple of
// kAlignment.
struct BufferHeader {
  uint64_t step, sequence;
  uint32_t trainer, incarnation;
};
struct BlockHeader {
  uint32_t table, slice;
  uint64_t count;
};
constexpr size_t kAlignment = 8;

template <class T>
void AppendTo(std::string* buffer, const T* values, size_t count) {
  buffer->append(reinterpret_cast<const char*>(values), count * sizeof(T));
}

// Takes parts off the front of a buffer.
class BufferReader {
 public:
  BufferReader(const char* data, size_t bytes) : rest_(data, bytes) {}

  bool empty() const { return rest_.empty(); }
  template <class T>
  bool Take(T* value) {
    const char* from = nullptr;
    if (!Take(1, sizeof(T), &from)) return false;
    std::memcpy(value, from, sizeof(T));
    return true;
  }
  bool Take(uint64_t count, size_t element_bytes, const char** from) {
    if (count > rest_.size() / element_bytes) return false;
    *from = rest_.data();
    const size_t bytes = count * element_bytes;
    rest_.remove_prefix(std::min(rest_.size(), (bytes + kAlignment - 1) / kAlignment * kAlignment));
    return true;
  }

 private:
  std::string_view rest_;
};

// Returns the first virtual shard that `rank` merges. Its shards end before FirstShard(rank + 1,
// size).
uint32_t FirstShard(size_t rank, size_t size) {
  return static_cast<uint32_t>((rank * rpc::kNumVirtualShards + size - 1) / size);
}

Router MergersOf(int size) {
  std::vector<uint16_t> owners(rpc::kNumVirtualShards);
  for (size_t shard = 0; shard < owners.size(); ++shard) {
    owners[shard] =
        static_cast<uint16_t>(shard * static_cast<size_t>(size) / rpc::kNumVirtualShards);
  }
  return Router(std::move(owners), size);
}

}  // namespace

struct MergedClient::Block {
  uint32_t table, slice, trainer;
  RowBlock rows;
};

MergedClient::MergedClient(const Clients& inner, MergedPushes& pushes,
                           std::unique_ptr<TrainerExchange> exchange, MergeOptions options)
    : ForwardingAdmin(*inner.tables),
      inner_(inner),
      merged_(pushes),
      exchange_(std::move(exchange)),
      options_(options),
      router_(MergersOf(exchange_->size())),
      buffers_(static_cast<size_t>(exchange_->size()), std::string(sizeof(BufferHeader), '\0')) {
  TANDEM_CHECK_LE(exchange_->size(), static_cast<int>(rpc::kNumVirtualShards));
}

absl::Status MergedClient::CreateTables(const std::vector<TableSpec>& tables,
                                        absl::Duration timeout) {
  RETURN_IF_ERROR(this->tables().CreateTables(tables, timeout));
  for (const TableSpec& spec : tables) specs_[spec.number()] = spec;
  return absl::OkStatus();
}

absl::Status MergedClient::CheckStep(uint64_t step) const {
  RETURN_IF_ERROR(failed_);
  if (step <= flushed_step_) {
    return absl::FailedPreconditionError(
        absl::StrCat("push for step ", step, " comes after the trainer's gradient norm or commit"));
  }
  if (held_step_ == 0 || held_step_ == step) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("push for step ", step, ", but pushes of step ",
                                                 held_step_, " wait for their commit"));
}

absl::StatusOr<MergedClient::Share> MergedClient::Cut(const PushSegment& segment) const {
  const auto spec = specs_.find(segment.table);
  if (spec == specs_.end())
    return absl::InvalidArgumentError(absl::StrCat("there is no table ", segment.table));
  Share share{&spec->second, {}, {}, {}, {}};
  const size_t count = segment.ids.size(), dim = spec->second.dim();
  ASSIGN_OR_RETURN(share.owned,
                   router_.Split(segment.table, spec->second.name(), segment.ids.data(), count));
  for (size_t i = 0; i < count; ++i) {
    const absl::Span<const float> gradient(segment.gradients + i * dim, dim);
    if (AllFinite(gradient)) continue;
    share.wrong.resize(count);
    share.wrong[i] = true;
    share.wrong_ids.push_back(segment.ids[i]);
    for (const float value : gradient) {
      share.wrong_gradients.push_back(
          share.spec->non_finite() == TableSpec::CLIP && std::isfinite(value) ? 0 : value);
    }
  }
  return share;
}

void MergedClient::Pack(uint32_t slice, const PushSegment& segment, const Share& share) {
  const size_t dim = share.spec->dim();
  const bool drops = share.spec->non_finite() == TableSpec::SKIP;
  std::vector<uint64_t> ids;
  std::vector<size_t> places;
  std::vector<float> mended;
  for (size_t rank = 0; rank < buffers_.size(); ++rank) {
    const OwnedIds& owned = share.owned[rank];
    ids.clear();
    places.clear();
    for (size_t i = 0; i < owned.ids.size(); ++i) {
      const size_t place = owned.positions.empty() ? i : owned.positions[i];
      if (drops && !share.wrong.empty() && share.wrong[place]) continue;
      ids.push_back(owned.ids[i]);
      places.push_back(place);
    }
    if (ids.empty()) continue;
    std::string& buffer = buffers_[rank];
    const BlockHeader header{segment.table, slice, ids.size()};
    AppendTo(&buffer, &header, 1);
    AppendTo(&buffer, ids.data(), ids.size());
    for (const size_t place : places) {
      const float* gradient = segment.gradients + place * dim;
      if (!share.wrong.empty() && share.wrong[place]) {
        mended.assign(gradient, gradient + dim);
        ZeroNonFinite(absl::MakeSpan(mended));
        gradient = mended.data();
      }
      AppendTo(&buffer, gradient, dim);
    }
    buffer.resize((buffer.size() + kAlignment - 1) / kAlignment * kAlignment);
  }
}

Future<Done> MergedClient::Push(uint64_t step, uint32_t slice, std::vector<PushSegment> segments) {
  struct Wrong {
    std::vector<Share> shares;
    std::vector<PushSegment> segments;
  };
  const auto wrong = std::make_shared<Wrong>();
  absl::Status refused = CheckStep(step);
  absl::Status rejected;
  for (size_t i = 0; refused.ok() && i < segments.size(); ++i) {
    auto share = Cut(segments[i]);
    refused = share.status();
    if (!refused.ok()) break;
    if (!share->wrong_ids.empty() && share->spec->non_finite() == TableSpec::REJECT) {
      rejected.Update(ValueGuardStatistics().NoteRejected(
          share->spec->name(), {share->wrong_ids[0], merged_.NamePush().trainer, step}));
    }
    wrong->shares.push_back(*std::move(share));
  }
  if (!refused.ok()) {
    refused_push_.Update(refused);
    return Future<Done>::Ready(refused);
  }
  if (!rejected.ok()) {
    refused_push_.Update(rejected);
    // The server refuses and counts the push.
    return inner_.rows->Push(step, slice, std::move(segments));
  }
  held_step_ = step;
  for (size_t i = 0; i < segments.size(); ++i) {
    const Share& share = wrong->shares[i];
    Pack(slice, segments[i], share);
    if (!share.wrong_ids.empty())
      wrong->segments.push_back({segments[i].table, share.wrong_ids, share.wrong_gradients.data()});
  }
  if (wrong->segments.empty()) return Future<Done>::Ready(Done());
  const Future<Done> counted = inner_.rows->Push(step, slice, wrong->segments);
  counted.OnReady([wrong](const absl::StatusOr<Done>&) {});
  return counted;
}

absl::Status MergedClient::Flush(uint64_t step) {
  if (!failed_.ok() || step <= flushed_step_) return failed_;
  absl::Status status = std::exchange(refused_push_, absl::OkStatus());
  if (status.ok() && held_step_ != 0 && held_step_ != step) {
    status = absl::InvalidArgumentError(
        absl::StrCat("step ", step, " ends, but pushes of step ", held_step_, " are waiting"));
  }
  if (status.ok()) status = ExchangeAndPush(step);
  for (std::string& buffer : buffers_) buffer.resize(sizeof(BufferHeader));
  held_step_ = 0;
  flushed_step_ = step;
  if (status.ok()) return status;
  failed_ = absl::Status(
      status.code(), absl::StrCat("pushes of step ", step, " were not merged: ", status.message()));
  exchange_->Abort(failed_);
  return failed_;
}

absl::StatusOr<AllToAllBuffers> MergedClient::ExchangeBuffers(uint64_t step, const PushName& own) {
  const BufferHeader header{step, own.sequence, own.trainer, own.incarnation};
  const auto mine = static_cast<size_t>(exchange_->rank()), others = buffers_.size() - 1;
  std::vector<size_t> bytes;
  for (size_t rank = 0; rank < buffers_.size(); ++rank) {
    std::memcpy(buffers_[rank].data(), &header, sizeof(header));
    // This trainer's own share stays here.
    bytes.push_back(rank == mine ? 0 : buffers_[rank].size());
  }
  if (others == 1) return exchange_->Exchange(buffers_[1 - mine].data(), bytes);
  const auto joined = Buffer::Allocate(std::accumulate(bytes.begin(), bytes.end(), size_t{0}));
  char* next = static_cast<char*>(joined->data());
  for (size_t rank = 0; rank < buffers_.size(); ++rank)
    next = std::copy_n(buffers_[rank].data(), bytes[rank], next);
  return exchange_->Exchange(static_cast<const char*>(joined->data()), bytes);
}

absl::Status MergedClient::ExchangeAndPush(uint64_t step) {
  const ConcurrentSpan span =
      tracer_.Begin(static_cast<uint32_t>(exchange_->rank()), SpanKind::PUSH, "merge_pushes", step);
  std::vector<PushName> names = {merged_.NamePush()};
  absl::StatusOr<AllToAllBuffers> incoming = ExchangeBuffers(step, names[0]);
  RETURN_IF_ERROR(incoming.status());
  TANDEM_CHECK_EQ(incoming->bytes.size(), buffers_.size());
  std::vector<Block> blocks;
  const char* next = static_cast<const char*>(incoming->memory->data());
  for (size_t rank = 0; rank < buffers_.size(); ++rank) {
    const bool mine = rank == static_cast<size_t>(exchange_->rank());
    absl::Status unpacked =
        mine ? Unpack(step, buffers_[rank].data(), buffers_[rank].size(), &blocks, nullptr)
             : Unpack(step, next, incoming->bytes[rank], &blocks, &names);
    if (!unpacked.ok())
      return absl::Status(unpacked.code(),
                          absl::StrCat("from rank ", rank, ": ", unpacked.message()));
    next += incoming->bytes[rank];
  }
  PushMerged(step, names, std::move(blocks));
  span.End();
  return absl::OkStatus();
}

absl::Status MergedClient::Unpack(uint64_t step, const char* buffer, size_t bytes,
                                  std::vector<Block>* blocks, std::vector<PushName>* names) const {
  const absl::Status malformed = absl::InternalError("malformed pushes");
  BufferReader reader(buffer, bytes);
  BufferHeader header;
  if (!reader.Take(&header)) return malformed;
  if (header.step != step) {
    return absl::FailedPreconditionError(absl::StrCat("its step is ", header.step, ", ours ", step,
                                                      ": trainers commit the same steps"));
  }
  if (names != nullptr && !reader.empty())
    names->push_back({header.trainer, header.incarnation, header.sequence});
  while (!reader.empty()) {
    BlockHeader block;
    if (!reader.Take(&block)) return malformed;
    const auto spec = specs_.find(block.table);
    if (spec == specs_.end())
      return absl::InvalidArgumentError(absl::StrCat("there is no table ", block.table));
    const char *ids = nullptr, *gradients = nullptr;
    if (!reader.Take(block.count, sizeof(uint64_t), &ids)) return malformed;
    if (!reader.Take(block.count, spec->second.dim() * sizeof(float), &gradients)) return malformed;
    blocks->push_back({block.table,
                       block.slice,
                       header.trainer,
                       {block.count, ids, reinterpret_cast<const float*>(gradients)}});
  }
  return absl::OkStatus();
}

void MergedClient::PushMerged(uint64_t step, const std::vector<PushName>& names,
                              std::vector<Block> blocks) {
  // Stable: a trainer's own blocks are in the order of its pushes.
  std::stable_sort(blocks.begin(), blocks.end(), [](const Block& a, const Block& b) {
    return std::tie(a.slice, a.trainer) < std::tie(b.slice, b.trainer);
  });
  std::map<uint32_t, std::vector<RowBlock>> of_tables;
  for (const Block& block : blocks) {
    of_tables[block.table].push_back(block.rows);
    rows_received_ += block.rows.count;
  }
  const auto merged = std::make_shared<std::vector<MergedRows>>();
  merged->reserve(of_tables.size());
  size_t bytes = 0;
  for (auto& [number, of_table] : of_tables) {
    const size_t dim = specs_.at(number).dim();
    bytes += CallBytes(merged->emplace_back(number, dim, std::move(of_table)).num_ids(), dim);
    rows_pushed_ += merged->back().num_ids();
  }
  const auto rank = static_cast<size_t>(exchange_->rank()), size = buffers_.size();
  const uint32_t first = FirstShard(rank, size), num_shards = FirstShard(rank + 1, size) - first;
  const size_t num_groups =
      std::clamp<size_t>((bytes + options_.push_bytes - 1) / options_.push_bytes, 1, num_shards);
  for (MergedRows& rows : *merged) {
    rows.Sum(num_groups, [&](uint32_t shard) { return (shard - first) * num_groups / num_shards; });
  }
  for (size_t group = 0; group < num_groups; ++group) {
    std::vector<PushSegment> segments;
    for (const MergedRows& rows : *merged) {
      if (!rows.ids(group).empty())
        segments.push_back({rows.table(), rows.ids(group), rows.gradients(group)});
    }
    if (segments.empty()) continue;
    // The inner client's commit waits for this push, and fails with it.
    merged_.PushMerged(step, names, std::move(segments))
        .OnReady([merged](const absl::StatusOr<Done>&) {});
  }
}

Future<absl::uint128> MergedClient::GradientNorm(uint64_t step) {
  if (absl::Status flushed = Flush(step); !flushed.ok())
    return Future<absl::uint128>::Ready(flushed);
  return inner_.rows->GradientNorm(step);
}

Future<Done> MergedClient::Commit(const CommitArgs& args) {
  if (absl::Status flushed = Flush(args.step); !flushed.ok()) return Future<Done>::Ready(flushed);
  return inner_.rows->Commit(args);
}

void MergedClient::Abort(absl::Status reason) {
  exchange_->Abort(reason);
  inner_.rows->Abort(std::move(reason));
}

void MergedClient::TraceSteps(std::shared_ptr<Tracer> tracer, uint64_t first, uint64_t last) {
  tracer_.TraceSteps(tracer, first, last);
  ForwardingAdmin::TraceSteps(std::move(tracer), first, last);
}

std::vector<std::string> MergedClient::Report() const {
  std::vector<std::string> lines = tables().Report();
  if (rows_received_ == 0) return lines;
  lines.push_back(absl::StrFormat(
      "merged pushes: gradients of %d rows of %d trainers were added up here, and %d rows pushed",
      rows_received_, exchange_->size(), rows_pushed_));
  return lines;
}

}  // namespace tandem::ps
