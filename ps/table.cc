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

namespace tandem::ps {
namespace {

constexpr size_t kSlabBytes = size_t{1} << 20;
constexpr uint32_t kMaxDim = 65536;
// How many ids ahead the index line is fetched, and again how many ahead the row.
constexpr size_t kLookAhead = 16;

int SlabShift(size_t stride) { return std::bit_width(std::max<size_t>(1, kSlabBytes / stride)) - 1; }

float LoadFloat(const char* place) {
  float value;
  std::memcpy(&value, place, sizeof(value));
  return value;
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
      layout_(spec.dim(), optimizer_->num_slots()),
      slab_shift_(SlabShift(layout_.stride())),
      sum_(spec.dim()) {
  TANDEM_CHECK(CheckTableSpec(spec).ok()) << CheckTableSpec(spec).ToString();
}

char* Table::Record(uint64_t number) const {
  const uint64_t in_slab = number & ((uint64_t{1} << slab_shift_) - 1);
  return static_cast<char*>(slabs_[number >> slab_shift_]->data()) + in_slab * layout_.stride();
}

void Table::ForEachNumber(absl::Span<const uint64_t> ids, size_t bytes_used,
                          absl::FunctionRef<void(size_t, uint64_t)> visit) const {
  uint64_t numbers[kLookAhead];
  for (size_t i = 0; i < ids.size() + 2 * kLookAhead; ++i) {
    if (i < ids.size()) index_.Prefetch(ids[i]);
    // The third stage comes before the second, which reuses its place in `numbers`.
    if (i >= 2 * kLookAhead) visit(i - 2 * kLookAhead, numbers[i % kLookAhead]);
    if (i >= kLookAhead && i - kLookAhead < ids.size()) {
      const uint64_t number = index_.Find(ids[i - kLookAhead]);
      numbers[i % kLookAhead] = number;
      if (number == RowIndex::kAbsent) continue;
      const char* record = Record(number);
      for (size_t offset = 0; offset < bytes_used; offset += 64) __builtin_prefetch(record + offset);
    }
  }
}

RowView Table::Append(const RowHeader& header) {
  const size_t number = num_rows_++;
  if (number >> slab_shift_ == slabs_.size()) slabs_.push_back(Buffer::Allocate(layout_.stride() << slab_shift_));
  index_.FindOrInsert(header.id, number);
  const RowView row = layout_.View(Record(number));
  *row.header = header;
  return row;
}

RowView Table::Create(uint64_t id) {
  const RowView row = Append(RowHeader{.id = id});
  InitializeWeights(spec_.seed(), spec_.init_stddev(), id, row.weights, row.dim);
  optimizer_->Init(row);
  return row;
}

void Table::Pull(absl::Span<const uint64_t> ids, bool create, float* rows, absl::Span<const uint32_t> positions) {
  const size_t dim = spec_.dim();
  const size_t bytes_used = layout_.weights_offset() + dim * sizeof(float);
  ForEachNumber(ids, bytes_used, [&](size_t i, uint64_t number) {
    float* target = rows + (positions.empty() ? i : positions[i]) * dim;
    if (number == RowIndex::kAbsent && !create) {
      InitializeWeights(spec_.seed(), spec_.init_stddev(), ids[i], target, spec_.dim());
      return;
    }
    const RowView row = number == RowIndex::kAbsent ? Create(ids[i]) : layout_.View(Record(number));
    std::memcpy(target, row.weights, dim * sizeof(float));
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

void Table::Commit(uint64_t step, float learning_rate, float scale, bool skip) {
  if (!skip) {
    ForEachNumber(pending_ids_, layout_.stride(), [&](size_t i, uint64_t number) {
      const RowView row =
          number == RowIndex::kAbsent ? Create(pending_ids_[i]) : layout_.View(Record(number));
      SumPending(pending_rows_[i]);
      optimizer_->Apply(row, sum_.data(), step, learning_rate, scale);
      row.header->last_step = static_cast<uint32_t>(step);
      row.header->frequency += pending_rows_[i].count;
      row.header->version += 1;
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
  ForEachRow([&](const RowView& row) {
    if (row.header->version == 0) return;
    ++result.num_rows;
    const uint64_t owner = RowOwner(name, row.header->id);
    for (int run = 0; run <= optimizer_->num_slots(); ++run) {
      const float* values = run == 0 ? row.weights : row.slot(run - 1);
      for (uint32_t column = 0; column < row.dim; ++column) {
        result.hash += HashScalar(owner, static_cast<uint32_t>(run), column, std::bit_cast<uint32_t>(values[column]));
      }
    }
  });
  return result;
}

void Table::ForEachRow(absl::FunctionRef<void(const RowView&)> visit) const {
  for (size_t number = 0; number < num_rows_; ++number) visit(layout_.View(Record(number)));
}

bool Table::Restore(const RowHeader& header, const float* values) {
  if (index_.Find(header.id) != RowIndex::kAbsent) return false;
  const RowView row = Append(header);
  std::memcpy(row.weights, values, sizeof(float) * row.dim * (1 + static_cast<size_t>(layout_.num_slots())));
  return true;
}

}  // namespace tandem::ps
