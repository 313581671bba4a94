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
// How many ids ahead the index of pending rows is fetched.
constexpr size_t kLookAhead = 16;
// Sets the random bits of rounding apart from those of first weights.
constexpr uint64_t kRoundingSalt = 0x726f756e64696e67;

float LoadFloat(const char* place) {
  float value;
  std::memcpy(&value, place, sizeof(value));
  return value;
}

// Inlined into loops compiled for the widest vectors, which memcpy of a length known at run time only is not. `bytes` of whole floats.
inline void CopyWeights(float* target, const char* source, size_t bytes) {
  char* const to = reinterpret_cast<char*>(target);
  size_t at = 0;
  for (; at + 64 <= bytes; at += 64) std::memcpy(to + at, source + at, 64);
  for (; at < bytes; at += sizeof(float)) std::memcpy(to + at, source + at, sizeof(float));
}

// sum += gradient, whose bytes need no alignment.
void AddBytes(float* sum, const char* gradient, size_t dim) {
  for (size_t i = 0; i < dim; ++i) sum[i] += LoadFloat(gradient + i * sizeof(float));
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

bool AllFinite(const char* values, size_t count) {
  constexpr uint32_t kExponent = 0x7f800000;
  uint32_t found = 0;
  for (size_t i = 0; i < count; ++i) {
    uint32_t bits;
    std::memcpy(&bits, values + i * sizeof(bits), sizeof(bits));
    found |= (bits & kExponent) == kExponent ? 1u : 0u;
  }
  return found == 0;
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

absl::Status CheckGradients(const TableSpec& spec, const void* ids, const void* gradients, size_t count) {
  const char* bytes = static_cast<const char*>(gradients);
  if (AllFinite(bytes, count * spec.dim())) return absl::OkStatus();
  for (size_t i = 0; i < count; ++i) {
    if (AllFinite(bytes + i * spec.dim() * sizeof(float), spec.dim())) continue;
    uint64_t id;
    std::memcpy(&id, static_cast<const char*>(ids) + i * sizeof(id), sizeof(id));
    return absl::InvalidArgumentError(
        absl::StrCat("table ", spec.name(), ": the gradient of id ", id, " is not finite (NaN or infinity)"));
  }
  return absl::OkStatus();
}

Table::Table(const TableSpec& spec)
    : spec_(spec),
      optimizer_(MakeSparseOptimizer(spec)),
      layout_(spec.dim(), spec.storage(), optimizer_->num_slot_values(spec.dim())),
      rows_(Secret(), layout_.stride()),
      pending_index_(0, Secret() | 1),
      sum_(spec.dim()),
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

void Table::Pull(absl::Span<const uint64_t> ids, bool create, float* rows, absl::Span<const uint32_t> positions) {
  const size_t dim = spec_.dim(), offset = layout_.weights_offset(), bytes = layout_.weight_bytes();
  const bool as_stored = layout_.storage() == STORED_F32;
  rows_.ForEach(ids, offset, bytes, [=, this](size_t i, char* record) {
    float* target = rows + (positions.empty() ? i : positions[i]) * dim;
    if (record == nullptr && !create) return FirstWeights(ids[i], target);
    if (record == nullptr) record = Create(ids[i]);
    if (as_stored) CopyWeights(target, record + offset, bytes);
    else DecodeWeights(layout_.storage(), record + offset, spec_.dim(), target);
  });
}

void Table::PullChanged(absl::Span<const uint64_t> ids, bool create, uint32_t read_bound, uint32_t* versions, float* rows,
                        absl::Span<const uint32_t> positions) {
  const size_t dim = spec_.dim(), offset = layout_.weights_offset();
  rows_.ForEach(ids, 0, offset + layout_.weight_bytes(), [=, this](size_t i, char* record) {
    const size_t position = positions.empty() ? i : positions[i];
    if (record == nullptr && create) record = Create(ids[i]);
    const uint32_t version = record == nullptr ? 0 : layout_.View(record).header->version;
    const uint32_t had = versions[position];
    // A version below the caller's is that of another row: one that was made anew.
    if (had != 0 && version + 1 >= had && version + 1 - had <= read_bound) {
      versions[position] = 0;
      return;
    }
    versions[position] = version + 1;
    if (record == nullptr) FirstWeights(ids[i], rows + position * dim);
    else DecodeWeights(layout_.storage(), record + offset, spec_.dim(), rows + position * dim);
  });
}

void Table::Accumulate(uint32_t slice, uint64_t sequence, absl::Span<const uint64_t> ids, const void* gradients,
                       std::shared_ptr<const void> owner, absl::Span<const uint32_t> positions) {
  if (ids.empty()) return;
  const uint32_t push = static_cast<uint32_t>(pushes_.size());
  pushes_.push_back({slice, sequence, std::move(owner)});
  const size_t row_bytes = spec_.dim() * sizeof(float);
  TANDEM_CHECK_LT(pending_.size() + ids.size(), size_t{kNone}) << "gradients pending in one step";
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i + kLookAhead < ids.size()) pending_index_.Prefetch(ids[i + kLookAhead]);
    const size_t position = positions.empty() ? i : positions[i];
    pending_.push_back({static_cast<const char*>(gradients) + position * row_bytes, push, kNone});
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

void Table::SumPending(const PendingRow& row) {
  std::memcpy(sum_.data(), pending_[row.head].gradient, sum_.size() * sizeof(float));
  for (uint32_t entry = pending_[row.head].next; entry != kNone; entry = pending_[entry].next) {
    AddBytes(sum_.data(), pending_[entry].gradient, sum_.size());
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
