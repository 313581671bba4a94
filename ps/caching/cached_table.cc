#include "ps/caching/cached_table.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "ps/wire/router.h"
#include "ps/wire/wire_rows.h"

namespace tandem::ps {

CachedTable::CachedTable(const TableSpec& spec, const CacheOptions& options)
    : spec_(spec),
      options_(options),
      dim_(spec.dim()),
      optimizer_(MakeSparseOptimizer(spec)),
      num_slots_(options.shows_own() ? optimizer_->num_slot_values(spec.dim()) : 0),
      rows_(options.rows_per_table, dim_ + num_slots_ + (options.write_bound > 0 ? 2 * dim_ : 0)),
      gradients_(dim_) {}

void CachedTable::Lookup(absl::Span<const uint64_t> ids, float* rows, uint32_t* versions) {
  for (size_t i = 0; i < ids.size(); ++i) {
    const uint32_t place = rows_.Find(ids[i]);
    versions[i] = place == RowCache::kNone ? 0 : rows_.version(place);
    if (place == RowCache::kNone) continue;
    rows_.CountUse(place);
    std::memcpy(rows + i * dim_, weights(place), dim_ * sizeof(float));
  }
}

void CachedTable::Take(uint64_t id, uint32_t version, float* row) {
  uint32_t place = rows_.Find(id);
  if (place == RowCache::kNone) {
    place = rows_.Insert(id);
    if (place == RowCache::kNone) return;
    if (num_slots_ > 0) optimizer_->Init(slots(place), spec_.dim());
  }
  rows_.set_version(place, version);
  if (rows_.pinned(place)) {
    for (size_t i = 0; i < dim_; ++i) row[i] += shown(place)[i];
  }
  std::memcpy(weights(place), row, dim_ * sizeof(float));
}

absl::Status CachedTable::CheckPush(uint64_t step, const PushSegment& segment) {
  const void* const ids = segment.ids.data();
  RETURN_IF_ERROR(
      Router::RoundRobin(1).Split(spec_.number(), spec_.name(), ids, segment.ids.size()).status());
  if (spec_.non_finite() != TableSpec::REJECT) return absl::OkStatus();
  const std::optional<size_t> wrong = FindNonFinite(segment.gradients, segment.ids.size(), dim_);
  if (!wrong.has_value()) return absl::OkStatus();
  return guarded_.NoteRejected(spec_.name(), {segment.ids[*wrong], options_.trainer, step});
}

void CachedTable::AddGradients(uint64_t step, absl::Span<const uint64_t> ids,
                               const float* gradients) {
  std::vector<float> mended(dim_);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (options_.write_bound == 0 && rows_.Find(ids[i]) == RowCache::kNone) continue;
    const float* gradient = gradients + i * dim_;
    // Applies the servers' policy before the gradient spoils a sum.
    if (spec_.non_finite() != TableSpec::REJECT &&
        !AllFinite(absl::MakeConstSpan(gradient, dim_))) {
      const bool skip = spec_.non_finite() == TableSpec::SKIP;
      if (options_.write_bound > 0) {
        ++(skip ? guarded_.skipped : guarded_.mended);
        guarded_.NoteOffender({ids[i], options_.trainer, step});
      }
      if (skip) continue;
      mended.assign(gradient, gradient + dim_);
      ZeroNonFinite(absl::MakeSpan(mended));
      gradient = mended.data();
    }
    gradients_.Add(ids[i], gradient);
  }
}

double CachedTable::GradientSquaredNorm() const {
  double squared = 0;
  for (size_t i = 0; i < gradients_.ids().size(); ++i) {
    for (size_t column = 0; column < dim_; ++column)
      squared += double{gradients_.sum(i)[column]} * double{gradients_.sum(i)[column]};
  }
  return squared;
}

void CachedTable::Show(uint32_t place, const float* gradient, const CommitArgs& args) {
  // Servers refuse this push.
  if (!AllFinite(absl::MakeConstSpan(gradient, dim_))) return;
  optimizer_->Apply(weights(place), slots(place), gradient, spec_.dim(), args.step,
                    args.RateOf(spec_.number()), args.gradient_scale);
}

void CachedTable::Keep(uint32_t place, const float* gradient, const CommitArgs& args) {
  if (!rows_.pinned(place)) {
    rows_.Pin(place, true);
    kept_rows_.push_back({args.step, place});
    std::fill(kept(place), kept(place) + 2 * dim_, 0.0f);
  }
  float* const sum = kept(place);
  float* const change = shown(place);
  const float* const now = weights(place);
  for (size_t i = 0; i < dim_; ++i) sum[i] += args.gradient_scale * gradient[i];
  for (size_t i = 0; i < dim_; ++i) change[i] -= now[i];
  Show(place, gradient, args);
  for (size_t i = 0; i < dim_; ++i) change[i] += now[i];
}

void CachedTable::ShowGradients(const CommitArgs& args) {
  for (size_t i = 0; !args.skip && i < gradients_.ids().size(); ++i) {
    const uint32_t place = rows_.Find(gradients_.ids()[i]);
    if (place != RowCache::kNone) Show(place, gradients_.sum(i), args);
  }
  gradients_.Clear();
}

void CachedTable::KeepGradients(const CommitArgs& args, std::vector<uint64_t>* ids,
                                std::vector<float>* due) {
  for (size_t i = 0; !args.skip && i < gradients_.ids().size(); ++i) {
    const uint64_t id = gradients_.ids()[i];
    const uint32_t place = rows_.Find(id);
    if (place != RowCache::kNone) {
      Keep(place, gradients_.sum(i), args);
      continue;
    }
    ids->push_back(id);
    for (size_t column = 0; column < dim_; ++column)
      due->push_back(args.gradient_scale * gradients_.sum(i)[column]);
  }
  gradients_.Clear();
  while (!kept_rows_.empty() &&
         (args.flush || kept_rows_.front().step + options_.write_bound <= args.step)) {
    const uint32_t place = kept_rows_.front().place;
    ids->push_back(rows_.id(place));
    due->insert(due->end(), kept(place), kept(place) + dim_);
    rows_.Pin(place, false);
    kept_rows_.pop_front();
  }
}

absl::Status CachedTable::CheckDue(const CommitArgs& args, const std::vector<uint64_t>& ids,
                                   const std::vector<float>& due) {
  if (spec_.non_finite() != TableSpec::REJECT) return absl::OkStatus();
  const std::optional<size_t> wrong = FindNonFinite(due.data(), ids.size(), spec_.dim());
  if (!wrong.has_value()) return absl::OkStatus();
  return guarded_.NoteRejectedSum(spec_.name(), {ids[*wrong], options_.trainer, args.step});
}

}  // namespace tandem::ps
