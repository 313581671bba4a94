#include "ps/table.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/params_hash.h"
#include "ps/initializer.h"
#include "ps/saturating.h"
#include "ps/secret.h"

namespace tandem::ps {
namespace {

constexpr uint32_t kMaxDim = 65536;
constexpr size_t kCacheLine = 64;
// How many ids ahead the index of pending rows is fetched.
constexpr size_t kLookAhead = 16;
// How many rows ahead a gradient is fetched: memory that is read row by row, but in pieces of several messages.
constexpr size_t kGradientsAhead = 6;
// Sets the random bits of rounding apart from those of first weights.
constexpr uint64_t kRoundingSalt = 0x726f756e64696e67;

// Inlined into loops compiled for the widest vectors, which memcpy of a length known at run time only is not.
inline void CopyRow(void* target, const char* source, size_t bytes) {
  char* const to = static_cast<char*>(target);
  size_t at = 0;
  for (; at + 64 <= bytes; at += 64) std::memcpy(to + at, source + at, 64);
  for (; at + sizeof(float) <= bytes; at += sizeof(float)) std::memcpy(to + at, source + at, sizeof(float));
  for (; at < bytes; ++at) to[at] = source[at];
}

// Eight fixed lanes, then their sum from left to right: the same bits on every machine.
double SquaredNorm(const float* x, size_t dim) {
  double lanes[8] = {};
  size_t i = 0;
  for (; i + 8 <= dim; i += 8) {
    for (size_t lane = 0; lane < 8; ++lane) {
      const double value = x[i + lane];
      lanes[lane] += value * value;
    }
  }
  for (size_t lane = 0; i < dim; ++i, ++lane) lanes[lane] += double{x[i]} * double{x[i]};
  double total = 0;
  for (double lane : lanes) total += lane;
  return total;
}

}  // namespace

absl::Status CheckTableSpec(const TableSpec& spec) {
  if (spec.name().empty()) return absl::InvalidArgumentError("a table needs a name");
  const auto wrong = [&](auto... text) {
    return absl::InvalidArgumentError(absl::StrCat("table ", spec.name(), ": ", text...));
  };
  if (spec.number() == 0) return wrong("number is 0, must be 1 or more");
  if (spec.dim() == 0 || spec.dim() > kMaxDim) return wrong("dim is ", spec.dim(), ", must be 1 to ", kMaxDim);
  if (!(spec.init_stddev() >= 0 && std::isfinite(spec.init_stddev()))) {
    return wrong("init_stddev is ", spec.init_stddev(), ", must be >= 0");
  }
  if (!RowStorage_IsValid(spec.storage())) return wrong("unknown storage ", static_cast<int>(spec.storage()));
  return CheckOptimizer(spec);
}

absl::Status CheckGradients(const TableSpec& spec, const void* ids, const WireRows& gradients, size_t count) {
  const size_t row_bytes = WireBytes(gradients.format(), spec.dim());
  size_t wrong = count;
  gradients.ForEachRun(count, [&](size_t first, const char* rows, size_t num_rows) {
    if (wrong != count || AllFinite(gradients.format(), rows, num_rows, spec.dim())) return;
    for (wrong = first; AllFinite(gradients.format(), rows + (wrong - first) * row_bytes, 1, spec.dim());) ++wrong;
  });
  if (wrong == count) return absl::OkStatus();
  uint64_t id;
  std::memcpy(&id, static_cast<const char*>(ids) + wrong * sizeof(id), sizeof(id));
  return absl::InvalidArgumentError(
      absl::StrCat("table ", spec.name(), ": the gradient of id ", id, " is not finite (NaN or infinity)"));
}

Table::Table(const TableSpec& spec)
    : spec_(spec),
      optimizer_(MakeSparseOptimizer(spec)),
      layout_(spec.dim(), spec.storage(), optimizer_->num_slot_values(spec.dim())),
      rows_(Secret(), layout_.stride()),
      pending_index_(0, Secret() | 1),
      sum_(spec.dim()),
      addend_(spec.dim()),
      weights_(spec.dim()),
      first_(layout_.weight_bytes()) {
  TANDEM_CHECK(CheckTableSpec(spec).ok()) << CheckTableSpec(spec).ToString();
}

RowView Table::Find(uint64_t id) const {
  char* const record = rows_.Find(id);
  return record == nullptr ? RowView() : layout_.View(record);
}

char* Table::Create(uint64_t id) {
  char* const record = rows_.Insert(id);
  const RowView row = layout_.View(record);
  InitializeWeights(spec_.seed(), spec_.init_stddev(), id, weights_.data(), spec_.dim());
  EncodeNearest(layout_.storage(), weights_.data(), spec_.dim(), row.weights);
  optimizer_->Init(row.slots, spec_.dim());
  return record;
}

void Table::FirstWeights(uint64_t id, float* weights) {
  InitializeWeights(spec_.seed(), spec_.init_stddev(), id, weights, spec_.dim());
  if (layout_.storage() == STORED_F32) return;
  EncodeNearest(layout_.storage(), weights, spec_.dim(), first_.data());
  DecodeWeights(layout_.storage(), first_.data(), spec_.dim(), weights);
}

void Table::Pull(absl::Span<const uint64_t> ids, bool create, void* rows, absl::Span<const uint32_t> positions,
                 WireFormat format) {
  const size_t offset = layout_.weights_offset(), bytes = layout_.weight_bytes(), row_bytes = WireBytes(format, spec_.dim());
  const RowStorage storage = layout_.storage();
  const bool as_stored = TravelsAsStored(format, storage);
  rows_.ForEach(ids, offset, bytes, [=, this](size_t i, char* record) {
    char* const target = static_cast<char*>(rows) + (positions.empty() ? i : positions[i]) * row_bytes;
    const bool computed = record == nullptr && !create;
    if (record == nullptr && create) record = Create(ids[i]);
    if (!computed && as_stored) return CopyRow(target, record + offset, row_bytes);
    const float* weights = weights_.data();
    if (computed) FirstWeights(ids[i], weights_.data());
    else if (storage == STORED_F32) weights = reinterpret_cast<const float*>(record + offset);
    else DecodeWeights(storage, record + offset, spec_.dim(), weights_.data());
    EncodeRow(format, weights, spec_.dim(), target);
  });
}

void Table::Accumulate(uint32_t slice, uint64_t sequence, absl::Span<const uint64_t> ids, const WireRows& gradients,
                       std::shared_ptr<const void> owner, absl::Span<const uint32_t> positions) {
  if (ids.empty()) return;
  const uint32_t push = static_cast<uint32_t>(pushes_.size());
  pushes_.push_back({slice, sequence, gradients, std::move(owner)});
  WireRows::Cursor rows(gradients, WireBytes(gradients.format(), spec_.dim()));
  TANDEM_CHECK_LT(pending_.size() + ids.size(), size_t{kNone}) << "gradients pending in one step";
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i + kLookAhead < ids.size()) pending_index_.Prefetch(ids[i + kLookAhead]);
    pending_.push_back({rows.At(positions.empty() ? i : positions[i]), push, kNone});
    Link(ids[i], static_cast<uint32_t>(pending_.size() - 1));
  }
}

bool Table::Before(uint32_t a, uint32_t b) const {
  const Push &x = pushes_[pending_[a].push], &y = pushes_[pending_[b].push];
  return std::pair(x.slice, x.sequence) < std::pair(y.slice, y.sequence);
}

void Table::Link(uint64_t id, uint32_t entry) {
  const auto [place, is_new] = pending_index_.FindOrInsert(id, pending_rows_.size());
  if (is_new) {
    pending_ids_.push_back(id);
    pending_rows_.push_back({entry, entry, 1});
    return;
  }
  PendingRow& row = pending_rows_[place];
  ++row.count;
  if (!Before(entry, row.tail)) {
    pending_[row.tail].next = entry;
    row.tail = entry;
    return;
  }
  uint32_t* link = &row.head;
  while (!Before(entry, *link)) link = &pending_[*link].next;
  pending_[entry].next = *link;
  *link = entry;
}

inline void Table::Decode(const Pending& entry, float* values) const {
  const WireFormat format = pushes_[entry.push].gradients.format();
  if (format == WIRE_F32) CopyRow(values, entry.gradient, spec_.dim() * sizeof(float));
  else DecodeRow(format, entry.gradient, spec_.dim(), values);
}

inline void Table::FetchGradient(const PendingRow& row) const {
  const Pending& entry = pending_[row.head];
  const char* const end = entry.gradient + WireBytes(pushes_[entry.push].gradients.format(), spec_.dim());
  for (const char* at = entry.gradient; at < end; at += kCacheLine) __builtin_prefetch(at);
}

inline void Table::SumPending(const PendingRow& row) {
  const size_t dim = spec_.dim();
  float* const sum = sum_.data();
  Decode(pending_[row.head], sum);
  for (uint32_t entry = pending_[row.head].next; entry != kNone; entry = pending_[entry].next) {
    Decode(pending_[entry], addend_.data());
    for (size_t i = 0; i < dim; ++i) sum[i] += addend_[i];
  }
}

absl::uint128 Table::GradientNorm() {
  absl::uint128 total = 0;
  for (const PendingRow& row : pending_rows_) {
    SumPending(row);
    total = SaturatingAdd(total, ToFixedPoint(SquaredNorm(sum_.data(), sum_.size())));
  }
  return total;
}

void Table::Apply(char* record, const float* gradient, uint32_t count, uint64_t step, float learning_rate, float scale) {
  const RowView row = layout_.View(record);
  const uint32_t dim = spec_.dim();
  if (layout_.storage() == STORED_F32) {
    optimizer_->Apply(reinterpret_cast<float*>(row.weights), row.slots, gradient, dim, step, learning_rate, scale);
  } else {
    DecodeWeights(layout_.storage(), row.weights, dim, weights_.data());
    optimizer_->Apply(weights_.data(), row.slots, gradient, dim, step, learning_rate, scale);
    EncodeStochastic(layout_.storage(), weights_.data(), dim, {spec_.seed() ^ kRoundingSalt, row.header->id}, step, row.weights);
  }
  row.header->last_step = static_cast<uint32_t>(step);
  row.header->frequency += count;
  row.header->version += 1;
}

void Table::Update(uint64_t step, float learning_rate, float scale, absl::Span<const uint64_t> ids, const float* gradients) {
  TANDEM_CHECK(pending_.empty());
  rows_.ForEach(ids, 0, layout_.stride(), [&](size_t i, char* record) {
    if (record == nullptr) record = Create(ids[i]);
    Apply(record, gradients + i * spec_.dim(), 1, step, learning_rate, scale);
  });
}

void Table::Commit(uint64_t step, float learning_rate, float scale, bool skip) {
  if (!skip) {
    rows_.ForEach(pending_ids_, 0, layout_.stride(), [&](size_t i, char* record) {
      if (record == nullptr) record = Create(pending_ids_[i]);
      if (i + kGradientsAhead < pending_rows_.size()) FetchGradient(pending_rows_[i + kGradientsAhead]);
      SumPending(pending_rows_[i]);
      Apply(record, sum_.data(), pending_rows_[i].count, step, learning_rate, scale);
    });
  }
  DropPending();
}

void Table::DropPending() {
  pushes_.clear();
  pending_.clear();
  pending_index_.Clear();
  pending_ids_.clear();
  pending_rows_.clear();
}

HashResult Table::Hash() const {
  HashResult result;
  const std::string_view name(spec_.name());
  const size_t dim = spec_.dim();
  ForEachRow([&](const RowView& row) {
    if (row.header->version == 0) return;
    ++result.num_rows;
    const uint64_t owner = RowOwner(name, row.header->id);
    ForEachStored(layout_.storage(), row.weights, spec_.dim(), [&](uint32_t column, uint32_t bits) {
      result.hash += HashScalar(owner, 0, column, bits);
    });
    for (size_t i = 0; i < layout_.num_slot_values(); ++i) {
      result.hash += HashScalar(owner, static_cast<uint32_t>(1 + i / dim), i % dim, std::bit_cast<uint32_t>(row.slots[i]));
    }
  });
  return result;
}

void Table::ForEachRow(absl::FunctionRef<void(const RowView&)> visit) const {
  rows_.ForEachRecord([&](char* record) { visit(layout_.View(record)); });
}

bool Table::Restore(const RowHeader& header, const char* values) {
  if (rows_.Find(header.id) != nullptr) return false;
  const RowView row = layout_.View(rows_.Insert(header.id));
  *row.header = header;
  std::memcpy(row.weights, values, layout_.value_bytes());
  return true;
}

}  // namespace tandem::ps
