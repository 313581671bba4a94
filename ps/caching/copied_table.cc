#include "ps/caching/copied_table.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/memory/buffer.h"
#include "ps/wire/router.h"
#include "ps/wire/value_guard.h"

namespace tandem::ps {
namespace {

TableSpec InFloats(TableSpec spec) {
  spec.set_storage(STORED_F32);
  return spec;
}

}  // namespace

CopiedTable::CopiedTable(const TableSpec& spec) : table_(InFloats(spec)) {}

MissingRows CopiedTable::Read(uint64_t step, const PullSegment& segment) {
  MissingRows missing;
  std::vector<uint64_t> here;
  std::vector<uint32_t> places;
  for (uint32_t i = 0; i < segment.ids.size(); ++i) {
    const uint64_t id = segment.ids[i];
    const bool in_window = id != 0 && window_.Find(id) != RowIndex::kAbsent;
    (in_window ? here : missing.ids).push_back(id);
    (in_window ? places : missing.places).push_back(i);
  }
  table_.Pull(step, here, /*create=*/false, segment.rows, places);
  missing.rows.resize(missing.ids.size() * dim());
  return missing;
}

void CopiedTable::Enter(uint64_t step, MissingRows& fetched) {
  // Unused: the pull creates the copies and their slots.
  std::vector<float> first_weights(fetched.rows.size());
  table_.Pull(/*step=*/0, fetched.ids, /*create=*/true, first_weights.data());
  for (size_t i = 0; i < fetched.ids.size(); ++i) {
    if (!window_.FindOrInsert(fetched.ids[i], ids_.size()).second) continue;
    const float* const row = fetched.rows.data() + i * dim();
    ids_.push_back(fetched.ids[i]);
    updated_.push_back(false);
    first_values_.insert(first_values_.end(), row, row + dim());
    std::memcpy(table_.Find(fetched.ids[i]).weights, row, dim() * sizeof(float));
  }
  table_.Pull(step, fetched.ids, /*create=*/false, fetched.rows.data());
}

ValueGuardStatistics CopiedTable::guarded() const {
  ValueGuardStatistics all = table_.guarded();
  all.Merge(rejected_);
  return all;
}

absl::Status CopiedTable::CheckPush(uint32_t trainer, uint64_t step, const PushSegment& segment) {
  const void* const ids = segment.ids.data();
  RETURN_IF_ERROR(Router::RoundRobin(1)
                      .Split(spec().number(), spec().name(), ids, segment.ids.size())
                      .status());
  for (const uint64_t id : segment.ids) {
    if (window_.Find(id) != RowIndex::kAbsent) continue;
    return absl::InvalidArgumentError(absl::StrCat("table ", spec().name(), ": the row of id ", id,
                                                   " was not pulled since deltas were pushed"));
  }
  if (spec().non_finite() != TableSpec::REJECT) return absl::OkStatus();
  const std::optional<size_t> wrong = FindNonFinite(segment.gradients, segment.ids.size(), dim());
  if (!wrong.has_value()) return absl::OkStatus();
  return rejected_.NoteRejected(spec().name(), {segment.ids[*wrong], trainer, step});
}

void CopiedTable::Accumulate(uint32_t slice, uint64_t order, const PushSegment& segment) {
  if (segment.ids.empty()) return;
  const auto gradients = Buffer::Allocate(segment.ids.size() * dim() * sizeof(float));
  std::memcpy(gradients->data(), segment.gradients, gradients->num_bytes());
  table_.Accumulate(slice, order, segment.ids, gradients->data(), gradients);
  for (const uint64_t id : segment.ids) pending_.push_back(window_.Find(id));
}

bool CopiedTable::Commit(const CommitArgs& args) {
  table_.Commit(args.step, args.RateOf(spec().number()), args.gradient_scale, args.skip);
  if (args.skip) pending_.clear();
  const bool any = !pending_.empty();
  for (const uint64_t place : pending_) updated_[place] = true;
  pending_.clear();
  return any;
}

absl::Status CopiedTable::TakeDeltas(const CommitArgs& args, uint32_t trainer,
                                     uint32_t num_trainers, std::vector<uint64_t>* ids,
                                     std::vector<float>* gradients) {
  for (size_t place = 0; place < ids_.size(); ++place) {
    if (updated_[place]) ids->push_back(ids_[place]);
  }
  std::sort(ids->begin(), ids->end());  // ascending ids are short on the wire
  absl::Status wrong;
  for (const uint64_t id : *ids) {
    const float* const first = first_values_.data() + window_.Find(id) * dim();
    const float* const last = reinterpret_cast<const float*>(table_.Find(id).weights);
    for (size_t i = 0; i < dim(); ++i)
      gradients->push_back((first[i] - last[i]) / static_cast<float>(num_trainers));
    if (!wrong.ok() || AllFinite(absl::MakeConstSpan(*gradients).last(dim()))) continue;
    wrong = absl::OutOfRangeError(absl::StrCat(
        "table ", spec().name(), ": the change of id ", id, " in the copies of trainer ", trainer,
        " up to step ", args.step, " is not finite (NaN or infinity)"));
  }
  window_.Clear();
  ids_.clear();
  first_values_.clear();
  updated_.clear();
  return wrong;
}

}  // namespace tandem::ps
