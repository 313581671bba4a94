#include "ps/store/table.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/params_hash.h"
#include "ps/store/initializer.h"
#include "ps/wire/hash_seed.h"
#include "ps/wire/saturating.h"
#include "ps/wire/step.h"

namespace tandem::ps {
namespace {

constexpr uint32_t kMaxDim = 65536;
// How many rows ahead a gradient is prefetched. Gradients are read row by row, but in pieces of
// several messages.
constexpr size_t kGradientsAhead = 6;
// Number of rows in one optimizer call. These rows stay in the first cache, with their gradients.
size_t RowsAtOnce(uint32_t dim) { return std::clamp<size_t>(2048 / dim, 1, 32); }

// Makes the random bits of rounding differ from those of first weights.
constexpr uint64_t kRoundingSalt = 0x726f756e64696e67;

// Adds in eight fixed lanes, then sums the lanes from left to right, for the same bits on every
// machine.
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
  if (spec.dim() == 0 || spec.dim() > kMaxDim)
    return wrong("dim is ", spec.dim(), ", must be 1 to ", kMaxDim);
  if (!(spec.init_stddev() >= 0 && std::isfinite(spec.init_stddev()))) {
    return wrong("init_stddev is ", spec.init_stddev(), ", must be >= 0");
  }
  if (!RowStorage_IsValid(spec.storage()))
    return wrong("unknown storage ", static_cast<int>(spec.storage()));
  if (spec.dense() && spec.storage() != STORED_F32)
    return wrong("storage of a dense table must be STORED_F32");
  if (!TableSpec::NonFinite_IsValid(spec.non_finite())) {
    return wrong("unknown policy non_finite ", static_cast<int>(spec.non_finite()));
  }
  if (!(spec.max_row_norm() >= 0 && std::isfinite(spec.max_row_norm()))) {
    return wrong("max_row_norm is ", spec.max_row_norm(), ", must be >= 0");
  }
  return CheckOptimizer(spec);
}

absl::Status CheckRowWidth(const TableSpec& spec, size_t width) {
  const size_t all = spec.dim() + MakeSparseOptimizer(spec)->num_slot_values(spec.dim());
  if (!spec.dense()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "table ", spec.name(), " is not dense: its rows are neither assigned nor read"));
  }
  if (width == spec.dim() || width == all) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("table ", spec.name(), ": rows of ", width,
                                                 " numbers, must have ", spec.dim(),
                                                 ", or with all slots ", all));
}

Table::Table(const TableSpec& spec)
    : spec_(spec),
      optimizer_(MakeSparseOptimizer(spec)),
      missed_(*optimizer_, spec.mode(), spec.dim()),
      layout_(spec.dim(), spec.storage(), optimizer_->num_slot_values(spec.dim())),
      rows_(HashSeed(), layout_.stride()),
      rows_at_once_(RowsAtOnce(spec.dim())),
      updates_(rows_at_once_),
      waiting_(rows_at_once_),
      sums_(rows_at_once_ * spec.dim()),
      addend_(spec.dim()),
      weights_(rows_at_once_ * spec.dim()),
      shown_(spec.dim()),
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
  if (optimizer_->remembers_shown()) {
    DecodeWeights(layout_.storage(), row.weights, spec_.dim(), weights_.data());
    optimizer_->Shown(weights_.data(), row.slots, spec_.dim());
  }
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

void Table::FirstWeights(uint64_t id, float* weights) {
  InitializeWeights(spec_.seed(), spec_.init_stddev(), id, weights, spec_.dim());
  if (layout_.storage() == STORED_F32) return;
  EncodeNearest(layout_.storage(), weights, spec_.dim(), first_.data());
  DecodeWeights(layout_.storage(), first_.data(), spec_.dim(), weights);
}

bool Table::BringsUpWhenPulled() const { return missed_.matter() && missed_.exact(); }

bool Table::ShowsDecayed() const { return !missed_.exact() && missed_.remembers_rates(); }

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
  show(absl::Span<const uint64_t>(numbers, ids.size()), all_there);
  // Another pull may create the absent rows, which would make the cached numbers wrong.
  if (kept != nullptr && !all_there) pulled_.DropLast();
}

void Table::Pull(uint64_t step, absl::Span<const uint64_t> ids, bool create, void* rows,
                 absl::Span<const uint32_t> positions, WireFormat format) {
  PullFound(step, ids, create, [&](absl::Span<const uint64_t> numbers, bool all_there) {
    Show(step, ids, numbers, all_there, static_cast<char*>(rows), positions, format);
  });
}

void Table::Show(uint64_t step, absl::Span<const uint64_t> ids, absl::Span<const uint64_t> numbers,
                 bool all_there, char* rows, absl::Span<const uint32_t> positions,
                 WireFormat format) {
  const RowStorage storage = layout_.storage();
  const bool brings_up = BringsUpWhenPulled(), decays = ShowsDecayed(),
             shows = step != 0 && optimizer_->remembers_shown();
  const size_t offset = layout_.weights_offset(), row_bytes = WireBytes(format, spec_.dim());
  const bool as_stored = TravelsAsStored(format, storage) && !decays && !shows;
  if (as_stored && !brings_up && all_there)
    return rows_.CopyPresent(numbers, offset, row_bytes, rows, positions);
  const bool whole = brings_up || decays || shows;
  const uint32_t* const places = positions.empty() ? nullptr : positions.data();
  rows_.ForEachNumber(
      numbers, whole ? 0 : offset, whole ? layout_.stride() : layout_.weight_bytes(),
      [=, this](size_t i, char* record) {
        char* const target = rows + (places == nullptr ? i : places[i]) * row_bytes;
        if (record == nullptr) return ShowFirst(ids[i], format, target);
        if (brings_up) BringUpStored(layout_.View(record));
        if (as_stored) return CopyBytes(target, record + offset, row_bytes);
        if (storage == STORED_F32 && !decays && !shows) {
          return EncodeRow(format, reinterpret_cast<const float*>(record + offset), spec_.dim(),
                           target);
        }
        DecodeWeights(storage, record + offset, spec_.dim(), shown_.data());
        if (decays) ShowDecayed(*layout_.View(record).header, shown_.data());
        EncodeRow(format, shown_.data(), spec_.dim(), target);
        if (!shows) return;
        DecodeRow(format, target, spec_.dim(), shown_.data());  // the row as the caller sees it
        optimizer_->Shown(shown_.data(), layout_.View(record).slots, spec_.dim());
      });
}

void Table::ShowFirst(uint64_t id, WireFormat format, char* target) {
  FirstWeights(id, shown_.data());
  EncodeRow(format, shown_.data(), spec_.dim(), target);
}

void Table::PullSums(uint64_t step, absl::Span<const uint64_t> ids, bool create,
                     absl::Span<const uint32_t> positions, const void* weights, float* sums) {
  const bool brings_up = BringsUpWhenPulled(), decays = ShowsDecayed(),
             shows = step != 0 && optimizer_->remembers_shown();
  const bool whole = brings_up || decays || shows,
             in_place = layout_.storage() == STORED_F32 && !decays && !shows;
  const size_t dim = spec_.dim(), offset = layout_.weights_offset(), bytes = layout_.weight_bytes();
  PullFound(step, ids, create, [&](absl::Span<const uint64_t> numbers, bool) {
    rows_.ForEachNumber(
        numbers, whole ? 0 : offset, whole ? layout_.stride() : bytes,
        [=, this](size_t i, char* record) {
          const float* row = shown_.data();
          if (record == nullptr) {
            FirstWeights(ids[i], shown_.data());
          } else {
            if (brings_up) BringUpStored(layout_.View(record));
            if (in_place)
              row = reinterpret_cast<const float*>(record + offset);
            else
              DecodeWeights(layout_.storage(), record + offset, spec_.dim(), shown_.data());
            if (decays) ShowDecayed(*layout_.View(record).header, shown_.data());
            if (shows) optimizer_->Shown(shown_.data(), layout_.View(record).slots, spec_.dim());
          }
          float weight = 1;
          if (weights != nullptr)
            std::memcpy(&weight, static_cast<const char*>(weights) + i * sizeof(weight),
                        sizeof(weight));
          float* const sum = sums + size_t{positions[i]} * dim;
          for (size_t column = 0; column < dim; ++column) sum[column] += weight * row[column];
        });
  });
}

void Table::PullShared(uint64_t step, absl::Span<const uint64_t> ids, bool create,
                       absl::Span<const uint32_t> positions, SharedSums& sums) {
  PullFound(step, ids, create, [&](absl::Span<const uint64_t> numbers, bool all_there) {
    size_t first = 0;
    for (size_t block = 0; block < sums.num_blocks(); ++block) {
      places_.clear();
      for (size_t i = first; i < ids.size() && positions[i] < sums.end(block); ++i) {
        places_.push_back(positions[i] - static_cast<uint32_t>(sums.begin(block)));
      }
      const size_t count = places_.size();
      if (count > 0) {
        Show(step, ids.subspan(first, count), numbers.subspan(first, count), all_there,
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
  const bool move = BringsUpWhenPulled() || ShowsDecayed();
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

inline const float* Table::Decode(const PendingGradients::Gradient& gradient, float* values) const {
  const WireFormat format = pending_.FormatOf(gradient);
  if (format == WIRE_F32)
    CopyBytes(values, gradient.bytes, spec_.dim() * sizeof(float));
  else
    DecodeRow(format, gradient.bytes, spec_.dim(), values);
  return values;
}

inline void Table::FetchGradients(size_t pending_row, const RecordPrefetch& lines) const {
  for (const auto* gradient = &pending_.first(pending_row); gradient != nullptr;
       gradient = pending_.next(*gradient)) {
    lines.Into<RecordPrefetch::kFirstCache>(gradient->bytes);
  }
}

void Table::SumPending(size_t pending_row, float* sum) {
  const size_t dim = spec_.dim();
  const PendingGradients::Gradient* gradient = &pending_.first(pending_row);
  Decode(*gradient, sum);
  while ((gradient = pending_.next(*gradient)) != nullptr) {
    Decode(*gradient, addend_.data());
    for (size_t i = 0; i < dim; ++i) sum[i] += addend_[i];
  }
}

uint32_t Table::SumFinite(size_t pending_row, uint64_t step, float* sum,
                          ValueGuardStatistics* guarded) {
  SumPending(pending_row, sum);
  const uint32_t count = pending_.count(pending_row);
  // REJECT checked each gradient when its message came.
  if (count == 1 && spec_.non_finite() == TableSpec::REJECT) return count;
  if (AllFinite({sum, spec_.dim()})) return count;
  return SumMended(pending_row, step, sum, guarded);
}

uint32_t Table::SumMended(size_t pending_row, uint64_t step, float* sum,
                          ValueGuardStatistics* guarded) {
  const bool skip = spec_.non_finite() == TableSpec::SKIP,
             clip = spec_.non_finite() == TableSpec::CLIP;
  std::vector<float> values(spec_.dim());
  std::fill_n(sum, values.size(), 0.0f);
  uint32_t added = 0, trainer = 0;
  bool sum_finite = true;
  for (auto* gradient = &pending_.first(pending_row); gradient != nullptr;
       gradient = pending_.next(*gradient)) {
    Decode(*gradient, values.data());
    const auto sender = static_cast<uint32_t>(pending_.SequenceOf(*gradient) >> kSequenceBits);
    const bool finite = AllFinite(values);
    if (!finite && guarded != nullptr && (skip || clip)) {
      ++(clip ? guarded->mended : guarded->skipped);
      guarded->NoteOffender({pending_.ids()[pending_row], sender, step});
    }
    if (!finite && skip) continue;
    if (clip) ZeroNonFinite(absl::MakeSpan(values));
    for (size_t i = 0; i < values.size(); ++i) sum[i] += values[i];
    ++added;
    if (sum_finite && !AllFinite({sum, values.size()})) {
      sum_finite = false;
      trainer = sender;
    }
  }
  return sum_finite ? added : MendSum(pending_row, step, trainer, added, sum, guarded);
}

uint32_t Table::MendSum(size_t pending_row, uint64_t step, uint32_t trainer, uint32_t added,
                        float* sum, ValueGuardStatistics* guarded) {
  const ValueGuardStatistics::Offender offender{pending_.ids()[pending_row], trainer, step};
  switch (spec_.non_finite()) {
    case TableSpec::CLIP:
      ZeroNonFinite({sum, spec_.dim()});
      break;
    case TableSpec::SKIP:
      std::fill_n(sum, spec_.dim(), 0.0f);
      added = 0;
      break;
    default:  // REJECT: the norm of such a step saturates
      added = 0;
      if (guarded == nullptr) break;
      absl::Status rejected = guarded->NoteRejectedSum(spec_.name(), offender);
      if (!overflow_.ok() && overflow_id_ <= offender.id) return added;
      overflow_ = std::move(rejected);
      overflow_id_ = offender.id;
      return added;
  }
  if (guarded != nullptr) {
    ++(spec_.non_finite() == TableSpec::CLIP ? guarded->mended : guarded->skipped);
    guarded->NoteOffender(offender);
  }
  return added;
}

float Table::ClippedScale(const float* sum, float scale) {
  if (spec_.max_row_norm() == 0) return scale;
  const double norm = std::sqrt(SquaredNorm(sum, spec_.dim())) * std::fabs(double{scale});
  if (!(norm > spec_.max_row_norm())) return scale;
  ++guarded_.clipped;
  return static_cast<float>(scale * (spec_.max_row_norm() / norm));
}

absl::uint128 Table::GradientNorm() {
  pending_.Link();
  absl::uint128 total = 0;
  for (size_t i = 0; i < pending_.num_rows(); ++i) {
    SumFinite(i, 0, sums_.data(), nullptr);
    total = SaturatingAdd(total, ToFixedPoint(SquaredNorm(sums_.data(), spec_.dim())));
  }
  return total;
}

RandomKey Table::RoundingKey(uint64_t id) const { return {spec_.seed() ^ kRoundingSalt, id}; }

bool Table::BringUp(const RowView& row, float* weights, uint64_t step) {
  const uint64_t from = row.header->last_step;
  if (row.header->version == 0 || from >= step) return false;
  if (missed_.exact()) {
    missed_.Replay(weights, row.slots, from, step, [&](uint64_t replayed) {
      if (layout_.storage() == STORED_F32) return;
      EncodeStochastic(layout_.storage(), weights, spec_.dim(), RoundingKey(row.header->id),
                       replayed, row.weights);
      DecodeWeights(layout_.storage(), row.weights, spec_.dim(), weights);
    });
  } else {
    missed_.CatchUp(weights, row.slots, from, step);
  }
  row.header->last_step = static_cast<uint32_t>(step);
  return true;
}

void Table::BringUpStored(const RowView& row) {
  const uint64_t step = missed_.last_step();
  const bool in_place = layout_.storage() == STORED_F32;
  float* const weights = in_place ? reinterpret_cast<float*>(row.weights) : weights_.data();
  if (!in_place) DecodeWeights(layout_.storage(), row.weights, spec_.dim(), weights);
  // With exact() BringUp has stored each step.
  if (!BringUp(row, weights, step) || in_place || missed_.exact()) return;
  EncodeStochastic(layout_.storage(), weights, spec_.dim(), RoundingKey(row.header->id), step,
                   row.weights);
}

void Table::BringUpAll() {
  ForEachRow([this](const RowView& row) { BringUpStored(row); });
  missed_.BeginAfter(missed_.last_step());
}

void Table::ShowDecayed(const RowHeader& header, float* weights) const {
  if (header.version == 0) return;
  const float decay = missed_.WeightDecay(header.last_step, missed_.last_step());
  for (uint32_t i = 0; i < spec_.dim(); ++i) weights[i] *= decay;
}

void Table::PrepareSave() {
  if (missed_.remembers_rates()) BringUpAll();
}

inline void Table::Enqueue(char* record, const RowUpdate& update, uint32_t count, uint64_t step,
                           double learning_rate) {
  updates_[num_updates_] = update;
  waiting_[num_updates_] = {record, count};
  if (++num_updates_ == rows_at_once_) Flush(step, learning_rate);
}

void Table::EnqueueSum(char* record, const float* sum, uint32_t count, float scale, uint64_t step,
                       double learning_rate) {
  const RowView row = layout_.View(record);
  const bool as_floats = layout_.storage() == STORED_F32;
  float* const weights = as_floats ? reinterpret_cast<float*>(row.weights)
                                   : weights_.data() + num_updates_ * spec_.dim();
  if (!as_floats) DecodeWeights(layout_.storage(), row.weights, spec_.dim(), weights);
  if (missed_.matter()) BringUp(row, weights, step - 1);
  Enqueue(record, {weights, row.slots, sum, scale}, count, step, learning_rate);
}

void Table::Flush(uint64_t step, double learning_rate) {
  optimizer_->ApplyRows({updates_.data(), num_updates_}, spec_.dim(), step, learning_rate);
  for (size_t i = 0; i < num_updates_; ++i) {
    const RowView row = layout_.View(waiting_[i].record);
    if (layout_.storage() != STORED_F32) {
      EncodeStochastic(layout_.storage(), updates_[i].weights, spec_.dim(),
                       RoundingKey(row.header->id), step, row.weights);
    }
    row.header->last_step = std::max(row.header->last_step, static_cast<uint32_t>(step));
    row.header->frequency += waiting_[i].count;
    row.header->version += 1;
  }
  num_updates_ = 0;
}

void Table::Update(uint64_t step, double learning_rate, float scale, absl::Span<const uint64_t> ids,
                   const float* gradients) {
  TANDEM_CHECK(pending_.empty());
  const bool in_place = UpdatesInPlace();
  rows_.ForEachNumber(FindNumbers(ids), 0, layout_.stride(), [=, this](size_t i, char* record) {
    const float* const gradient = gradients + i * spec_.dim();
    if (record != nullptr && in_place) [[likely]] {
      const RowView row = layout_.View(record);
      return Enqueue(record, {reinterpret_cast<float*>(row.weights), row.slots, gradient, scale}, 1,
                     step, learning_rate);
    }
    // Create may move queued rows, and this row may be queued.
    Flush(step, learning_rate);
    EnqueueSum(record != nullptr ? record : Create(ids[i]), gradient, 1, scale, step,
               learning_rate);
  });
  Flush(step, learning_rate);
  missed_.Add(step, learning_rate, /*skipped=*/false);
}

void Table::CommitRow(size_t pending_row, char* record, float scale, uint64_t step,
                      double learning_rate) {
  if (record == nullptr) Flush(step, learning_rate);  // Creating a row may move queued rows.
  float* const sum = sums_.data() + num_updates_ * spec_.dim();
  const uint32_t count = SumFinite(pending_row, step, sum, &guarded_);
  if (count == 0) return;
  if (record == nullptr) record = FindOrCreate(pending_.ids()[pending_row]);
  EnqueueSum(record, sum, count, ClippedScale(sum, scale), step, learning_rate);
}

void Table::Commit(uint64_t step, double learning_rate, float scale, bool skip) {
  pending_.Link();
  if (!skip) {
    // Fast path: a row with exactly one gradient is updated in place, in few instructions. So the
    // processor sees as many rows as it can request from memory. Gradients are used in place too,
    // unless they are not arrays of floats. A gradient is read once, because its sender may still
    // write to its memory.
    const bool plain =
        UpdatesInPlace() && spec_.non_finite() == TableSpec::REJECT && spec_.max_row_norm() == 0;
    const bool as_floats = pending_.all_floats();
    const size_t num_rows = pending_.num_rows();
    // All pushes of a step usually have one format.
    const WireFormat format = num_rows == 0 ? WIRE_F32 : pending_.FormatOf(pending_.first(0));
    const size_t bytes = WireBytes(format, spec_.dim());
    rows_.ForEachNumber(
        pending_.numbers(), 0, layout_.stride(),
        [=, this, lines = RecordPrefetch(bytes, 0, bytes)](size_t i, char* record) {
          if (i + kGradientsAhead < num_rows) FetchGradients(i + kGradientsAhead, lines);
          const PendingGradients::Gradient& gradient = pending_.first(i);
          if (!plain || record == nullptr || pending_.next(gradient) != nullptr) [[unlikely]] {
            return CommitRow(i, record, scale, step, learning_rate);
          }
          const float* values = reinterpret_cast<const float*>(gradient.bytes);
          if (!as_floats) values = Decode(gradient, sums_.data() + num_updates_ * spec_.dim());
          const RowView row = layout_.View(record);
          Enqueue(record, {reinterpret_cast<float*>(row.weights), row.slots, values, scale}, 1,
                  step, learning_rate);
        },
        /*visits_fetch=*/true);
    Flush(step, learning_rate);
  } else if (spec_.non_finite() != TableSpec::REJECT) {
    // Counts offenders of skipped steps too, because people want to know whose gradients were at
    // fault.
    for (size_t i = 0; i < pending_.num_rows(); ++i) SumFinite(i, step, sums_.data(), &guarded_);
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
      result.hash += HashScalar(owner, static_cast<uint32_t>(1 + i / dim), i % dim,
                                std::bit_cast<uint32_t>(row.slots[i]));
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
