#include "ps/store/table.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "kernels/base/check.h"
#include "ps/store/spec_check.h"
#include "ps/wire/hash_seed.h"
#include "ps/wire/saturating.h"

namespace tandem::ps {
Table::Table(const TableSpec& spec)
    : spec_(spec),
      optimizer_(MakeSparseOptimizer(spec)),
      missed_(*optimizer_, spec.mode(), spec.dim()),
      layout_(spec.dim(), spec.storage(), optimizer_->num_slot_values(spec.dim())),
      values_(spec_, *optimizer_, missed_, layout_),
      rows_(HashSeed(), layout_.stride()),
      sums_(spec_, pending_),
      updates_(*optimizer_, missed_, layout_, values_),
      shown_(spec.dim()) {
  TANDEM_CHECK(CheckTableSpec(spec).ok()) << CheckTableSpec(spec).ToString();
}

RowView Table::Find(uint64_t id) const {
  char* const record = rows_.Find(id);
  return record == nullptr ? RowView() : layout_.View(record);
}

char* Table::Create(uint64_t id) {
  char* const record = rows_.Insert(id);
  values_.Init(layout_.View(record));
  return record;
}

absl::Span<const uint64_t> Table::FindNumbers(absl::Span<const uint64_t> ids) {
  numbers_.resize(ids.size());
  rows_.FindNumbers(ids, numbers_.data());
  return numbers_;
}

char* Table::FindOrCreate(uint64_t id) {
  char* const record = rows_.Find(id);
  return record != nullptr ? record : Create(id);
}

template <class Visit>
void Table::PullFound(uint64_t step, absl::Span<const uint64_t> ids, bool create,
                      const Visit& show) {
  // A trainer will push gradients of the rows that it pulls.
  uint64_t* const kept = step == 0 ? nullptr : pulled_.Add(ids);
  if (kept == nullptr) numbers_.resize(ids.size());
  uint64_t* const numbers = kept == nullptr ? numbers_.data() : kept;
  bool all_there = rows_.FindNumbers(ids, numbers) == 0;
  if (!all_there && create) {
    for (size_t i = 0; i < ids.size(); ++i) {
      // An id may repeat.
      if (numbers[i] == IdIndex::kNone) numbers[i] = rows_.NumberOf(FindOrCreate(ids[i]));
    }
    all_there = true;
  }
  show(absl::Span<const uint64_t>(numbers, ids.size()));
  // Another pull may create the absent rows, which would make the cached numbers wrong.
  if (kept != nullptr && !all_there) pulled_.DropLast();
}

void Table::Pull(uint64_t step, absl::Span<const uint64_t> ids, bool create, void* rows,
                 absl::Span<const uint32_t> positions, WireFormat format) {
  PullFound(step, ids, create, [&](absl::Span<const uint64_t> numbers) {
    Show(step, ids, numbers, static_cast<char*>(rows), positions, format);
  });
}

void Table::Show(uint64_t step, absl::Span<const uint64_t> ids, absl::Span<const uint64_t> numbers,
                 char* rows, absl::Span<const uint32_t> positions, WireFormat format) {
  const bool brings_up = values_.BringsUpWhenPulled(), decays = values_.ShowsDecayed(),
             shows = step != 0 && optimizer_->remembers_shown();
  const bool copies = TravelsAsStored(format, layout_.storage()) && !brings_up && !decays && !shows,
             whole = brings_up || decays || shows;
  const size_t offset = layout_.weights_offset(), row_bytes = WireBytes(format, spec_.dim());
  const uint32_t* const places = positions.empty() ? nullptr : positions.data();
  rows_.ForEachNumber(numbers, whole ? 0 : offset,
                      whole ? layout_.stride() : layout_.weight_bytes(),
                      [=, this](size_t i, char* record) {
                        char* const target = rows + (places == nullptr ? i : places[i]) * row_bytes;
                        if (record == nullptr) [[unlikely]]
                          return ShowFirst(ids[i], format, target);
                        if (copies) [[likely]]
                          return CopyBytes(target, record + offset, row_bytes);
                        ShowConverted(layout_.View(record), shows, format, target);
                      });
}

void Table::ShowConverted(const RowView& row, bool shows, WireFormat format, char* target) {
  if (values_.BringsUpWhenPulled()) values_.BringUpStored(row);
  if (TravelsAsStored(format, layout_.storage()) && !values_.ShowsDecayed() && !shows)
    return CopyBytes(target, row.weights, WireBytes(format, spec_.dim()));
  const float* weights = values_.Weights(row, shown_.data());
  if (values_.ShowsDecayed()) {
    if (weights != shown_.data()) std::copy_n(weights, spec_.dim(), shown_.data());
    values_.ShowDecayed(*row.header, shown_.data());
    weights = shown_.data();
  }
  EncodeRow(format, weights, spec_.dim(), target);
  if (!shows) return;
  DecodeRow(format, target, spec_.dim(), shown_.data());  // the row as the caller sees it
  optimizer_->Shown(shown_.data(), row.slots, spec_.dim());
}

void Table::ShowFirst(uint64_t id, WireFormat format, char* target) {
  values_.First(id, shown_.data());
  EncodeRow(format, shown_.data(), spec_.dim(), target);
}

void Table::PullSums(uint64_t step, absl::Span<const uint64_t> ids, bool create,
                     absl::Span<const uint32_t> positions, SharedSums& sums) {
  PullFound(step, ids, create, [&](absl::Span<const uint64_t> numbers) {
    const auto position = [positions](size_t i) { return positions.empty() ? i : positions[i]; };
    size_t first = 0;
    for (size_t block = 0; block < sums.num_blocks(); ++block) {
      places_.clear();
      for (size_t i = first; i < ids.size() && position(i) < sums.end(block); ++i)
        places_.push_back(static_cast<uint32_t>(position(i) - sums.begin(block)));
      const size_t count = places_.size();
      if (count > 0) {
        Show(step, ids.subspan(first, count), numbers.subspan(first, count),
             reinterpret_cast<char*>(sums.Rows(block)), places_, WIRE_F32);
      }
      sums.Arrive(block);
      first += count;
    }
  });
}

void Table::PullChanged(uint64_t step, absl::Span<const uint64_t> ids, bool create,
                        uint32_t read_bound, uint32_t* versions, void* rows,
                        absl::Span<const uint32_t> positions, WireFormat format) {
  std::vector<uint64_t> changed;
  std::vector<uint32_t> places;
  // These rows change without a commit once they have a version.
  const bool move = values_.BringsUpWhenPulled() || values_.ShowsDecayed();
  rows_.ForEachNumber(FindNumbers(ids), 0, sizeof(RowHeader), [&](size_t i, char* record) {
    const uint32_t place = positions.empty() ? static_cast<uint32_t>(i) : positions[i];
    const uint32_t version = record == nullptr ? 0 : layout_.View(record).header->version,
                   had = versions[place];
    // A version below the caller's belongs to a row that was created anew.
    const bool good = had != 0 && version + 1 >= had && version + 1 - had <= read_bound;
    const bool stays = version == 0 ? record != nullptr || !create : !move;
    versions[place] = good && stays ? 0 : version + 1;
    if (good && stays) return left_out_.Add(version + 1 - had);
    changed.push_back(ids[i]);
    places.push_back(place);
  });
  Pull(step, changed, create, rows, places, format);
}

void Table::Accumulate(uint32_t slice, uint64_t sequence, absl::Span<const uint64_t> ids,
                       const WireRows& gradients, std::shared_ptr<const void> owner,
                       absl::Span<const uint32_t> positions) {
  if (ids.empty()) return;
  absl::Span<const uint64_t> numbers = pulled_.Find(ids);
  if (numbers.empty()) numbers = FindNumbers(ids);
  pending_.Add(slice, sequence, ids, numbers, rows_.end_number(), gradients,
               WireBytes(gradients.format(), spec_.dim()), std::move(owner), positions);
}

absl::uint128 Table::GradientNorm() {
  pending_.Link();
  absl::uint128 total = 0;
  for (size_t i = 0; i < pending_.num_rows(); ++i) {
    const GradientSums::RowSum sum = sums_.Sum(i, 0, /*counts=*/false, updates_.gradient());
    total = SaturatingAdd(total, ToFixedPoint(SquaredNorm(sum.values, spec_.dim())));
  }
  return total;
}

void Table::BringUpAll() {
  ForEachRow([this](const RowView& row) { values_.BringUpStored(row); });
  missed_.BeginAfter(missed_.last_step());
}

void Table::PrepareSave() {
  if (missed_.remembers_rates()) BringUpAll();
}

// Most rows have one gradient, and their update takes few instructions here. So the processor sees
// as many rows as it can request from memory.
void Table::UpdateRows(uint64_t step, double learning_rate, float scale) {
  const size_t num_rows = pending_.num_rows();
  // All pushes of a step usually have one format.
  const WireFormat format = num_rows == 0 ? WIRE_F32 : pending_.FormatOf(pending_.first(0));
  const size_t bytes = WireBytes(format, spec_.dim());
  rows_.ForEachNumber(
      pending_.numbers(), 0, layout_.stride(),
      [=, this, lines = RecordPrefetch(bytes, 0, bytes)](size_t i, char* record) {
        if (i + RecordPrefetch::kAhead < num_rows) sums_.Fetch(i + RecordPrefetch::kAhead, lines);
        // Creating a row may move queued rows.
        if (record == nullptr) [[unlikely]]
          updates_.Flush(step, learning_rate);
        const auto [sum, count] = sums_.Sum(i, step, /*counts=*/true, updates_.gradient());
        if (count == 0) [[unlikely]]
          return;
        if (record == nullptr) [[unlikely]]
          record = FindOrCreate(pending_.ids()[i]);
        updates_.Add(record, sum, count, sums_.ClippedScale(sum, scale), step, learning_rate);
      });
  updates_.Flush(step, learning_rate);
}

void Table::Commit(uint64_t step, double learning_rate, float scale, bool skip) {
  pending_.Link();
  if (!skip) {
    UpdateRows(step, learning_rate, scale);
  } else if (spec_.non_finite() != TableSpec::REJECT) {
    // Counts offenders of skipped steps too, because people want to know whose gradients were at
    // fault.
    for (size_t i = 0; i < pending_.num_rows(); ++i)
      sums_.Sum(i, step, /*counts=*/true, updates_.gradient());
  }
  missed_.Add(step, learning_rate, skip);
  DropPending();
  pulled_.Clear();
}

void Table::DropPending() { pending_.Clear(); }

bool Table::Differs(uint64_t id, const char* values, size_t width) const {
  const RowView row = Find(id);
  return row.header != nullptr && std::memcmp(row.weights, values, width * sizeof(float)) != 0;
}

void Table::Assign(uint64_t id, const char* values, size_t width, uint64_t step) {
  if (Find(id).header != nullptr) return;
  const RowView row = layout_.View(Create(id));
  std::memcpy(row.weights, values, width * sizeof(float));
  row.header->last_step = static_cast<uint32_t>(step);
}

bool Table::Read(uint64_t id, float* values, size_t width) const {
  const RowView row = Find(id);
  if (row.header != nullptr) std::memcpy(values, row.weights, width * sizeof(float));
  return row.header != nullptr;
}

HashResult Table::Hash() {
  if (missed_.matter() && missed_.exact()) BringUpAll();
  HashResult result;
  if (spec_.dense()) return result;
  ForEachRow([&](const RowView& row) {
    if (row.header->version == 0) return;
    ++result.num_rows;
    result.hash += HashRow(spec_.name(), layout_, row.header->id, row.weights);
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
