#include "ps/client_cached.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "ps/optimizer/sparse_optimizer.h"
#include "ps/router.h"
#include "ps/row_cache.h"
#include "ps/saturating.h"
#include "ps/step_gradients.h"
#include "ps/table.h"

namespace tandem::ps {
namespace {

using rpc::Done;
using rpc::Future;

// What a hit costs on the wire in place of the row: its version there and the answer.
constexpr size_t kVersionBytes = 2 * sizeof(uint32_t);

}  // namespace

struct CachedClient::Cache {
  struct KeptRow {
    uint64_t step;  // of the first gradient kept back
    uint32_t place;
  };
  // One table's rows. A row's values: weights, then slots if updates show here, then kept gradients and what they changed here, if any
  // are kept back.
  struct CachedTable {
    CachedTable(const TableSpec& spec, const CachedClientOptions& options)
        : spec(spec),
          dim(spec.dim()),
          optimizer(MakeSparseOptimizer(spec)),
          num_slots(options.shows_own() ? optimizer->num_slot_values(spec.dim()) : 0),
          rows(options.rows_per_table, dim + num_slots + (options.write_bound > 0 ? 2 * dim : 0)),
          gradients(dim) {}

    float* weights(uint32_t place) { return rows.values(place); }
    float* slots(uint32_t place) { return weights(place) + dim; }
    float* kept(uint32_t place) { return slots(place) + num_slots; }   // gradients, scaled
    float* shown(uint32_t place) { return kept(place) + dim; }         // what they added to the weights

    // The row as the server sent it, plus what is kept back of it; the caller's `row` becomes the same.
    void Take(uint64_t id, uint32_t version, float* row);
    // One update with this trainer's gradient, as the server will make it.
    void Show(uint32_t place, const float* gradient, const CommitArgs& args);
    // Shows the gradient and keeps it back.
    void Keep(uint32_t place, const float* gradient, const CommitArgs& args);
    // What is pushed in a step: the gradients of rows that are not here, and what has been kept for long enough.
    void TakeDue(const CommitArgs& args, uint32_t write_bound, std::vector<uint64_t>* ids, std::vector<float>* due);

    const TableSpec spec;
    const size_t dim;
    const std::unique_ptr<SparseOptimizer> optimizer;
    const size_t num_slots;
    RowCache rows;
    StepGradients gradients;           // of the open step, as far as they are needed here
    std::deque<KeptRow> kept_rows;     // oldest first
  };

  explicit Cache(const CachedClientOptions& options) : options(options) {}

  CachedTable* Find(uint32_t table) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const auto found = tables.find(table);
    return found == tables.end() ? nullptr : &found->second;
  }
  // FailedPrecondition if own updates that are to show in the rows are still to come.
  absl::Status CheckStep(uint64_t step);
  void Lookup(Pulled& pulled);
  void TakeRows(Pulled& pulled);
  absl::Status CheckPush(const std::vector<PushSegment>& segments);
  void AddGradients(const std::vector<PushSegment>& segments, bool cached_only);
  void ShowGradients(const CommitArgs& args);
  bool KeepsBack();
  // Of a step that failed nobody knows what is in the servers' rows.
  void Forget();

  const CachedClientOptions options;
  absl::Mutex mutex;
  std::map<uint32_t, CachedTable> tables ABSL_GUARDED_BY(mutex);  // by number
  uint64_t num_commits ABSL_GUARDED_BY(mutex) = 0;  // if own updates show
  uint64_t last_commit ABSL_GUARDED_BY(mutex) = 0;  // likewise; its step, 0: none yet
  Counts counts ABSL_GUARDED_BY(mutex);
  absl::Status refused_push ABSL_GUARDED_BY(mutex);  // since the last commit
};

// A pull on its way.
struct CachedClient::Pulled {
  std::vector<PullSegment> segments;
  std::vector<std::vector<uint32_t>> had, versions;  // [segment][id], as PullSegment::versions: asked, answered
  uint64_t num_commits = 0;                          // before it
};

void CachedClient::Cache::CachedTable::Take(uint64_t id, uint32_t version, float* row) {
  uint32_t place = rows.Find(id);
  if (place == RowCache::kNone) {
    place = rows.Insert(id);
    if (place == RowCache::kNone) return;
    if (num_slots > 0) optimizer->Init(slots(place), spec.dim());
  }
  rows.set_version(place, version);
  if (rows.pinned(place)) {
    for (size_t i = 0; i < dim; ++i) row[i] += shown(place)[i];
  }
  std::memcpy(weights(place), row, dim * sizeof(float));
}

void CachedClient::Cache::CachedTable::Show(uint32_t place, const float* gradient, const CommitArgs& args) {
  // What is not finite the servers do not add either.
  if (!std::all_of(gradient, gradient + dim, [](float value) { return std::isfinite(value); })) return;
  optimizer->Apply(weights(place), slots(place), gradient, spec.dim(), args.step, args.RateOf(spec.number()), args.gradient_scale);
}

void CachedClient::Cache::CachedTable::Keep(uint32_t place, const float* gradient, const CommitArgs& args) {
  if (!rows.pinned(place)) {
    rows.Pin(place, true);
    kept_rows.push_back({args.step, place});
    std::fill(kept(place), kept(place) + 2 * dim, 0.0f);
  }
  float* const sum = kept(place);
  float* const change = shown(place);
  const float* const now = weights(place);
  for (size_t i = 0; i < dim; ++i) sum[i] += args.gradient_scale * gradient[i];
  for (size_t i = 0; i < dim; ++i) change[i] -= now[i];
  Show(place, gradient, args);
  for (size_t i = 0; i < dim; ++i) change[i] += now[i];
}

void CachedClient::Cache::CachedTable::TakeDue(const CommitArgs& args, uint32_t write_bound, std::vector<uint64_t>* ids,
                                               std::vector<float>* due) {
  for (size_t i = 0; !args.skip && i < gradients.ids().size(); ++i) {
    const uint64_t id = gradients.ids()[i];
    const uint32_t place = rows.Find(id);
    if (place != RowCache::kNone) {
      Keep(place, gradients.sum(i), args);
      continue;
    }
    ids->push_back(id);
    for (size_t column = 0; column < dim; ++column) due->push_back(args.gradient_scale * gradients.sum(i)[column]);
  }
  gradients.Clear();
  while (!kept_rows.empty() && (args.flush || kept_rows.front().step + write_bound <= args.step)) {
    const uint32_t place = kept_rows.front().place;
    ids->push_back(rows.id(place));
    due->insert(due->end(), kept(place), kept(place) + dim);
    rows.Pin(place, false);
    kept_rows.pop_front();
  }
}

absl::Status CachedClient::Cache::CheckStep(uint64_t step) {
  absl::MutexLock lock(&mutex);
  if (last_commit == 0 || step == last_commit + 1) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("pull for step ", step, " after the commit of step ", last_commit, ": with bounds, rows are pulled step by step"));
}

void CachedClient::Cache::Lookup(Pulled& pulled) {
  absl::MutexLock lock(&mutex);
  pulled.num_commits = num_commits;
  for (PullSegment& segment : pulled.segments) {
    TANDEM_CHECK(segment.versions == nullptr) << "rows are kept twice";
    std::vector<uint32_t>& versions = pulled.versions.emplace_back(segment.ids.size(), 0);
    CachedTable* const table = Find(segment.table);
    for (size_t i = 0; table != nullptr && i < segment.ids.size(); ++i) {
      const uint32_t place = table->rows.Find(segment.ids[i]);
      if (place == RowCache::kNone) continue;
      versions[i] = table->rows.version(place);
      table->rows.CountUse(place);
      std::memcpy(segment.rows + i * table->dim, table->weights(place), table->dim * sizeof(float));
    }
    pulled.had.push_back(versions);
    segment.versions = versions.data();
    segment.read_bound = options.read_bound;
  }
}

void CachedClient::Cache::TakeRows(Pulled& pulled) {
  absl::MutexLock lock(&mutex);
  for (size_t s = 0; s < pulled.segments.size(); ++s) {
    const PullSegment& segment = pulled.segments[s];
    CachedTable& table = *Find(segment.table);
    for (size_t i = 0; i < segment.ids.size(); ++i) {
      const uint32_t had = pulled.had[s][i], version = pulled.versions[s][i];
      ++(version == 0 ? counts.hits : had != 0 ? counts.refreshes : counts.misses);
      if (version == 0) counts.hit_bytes += table.dim * sizeof(float);
      // After a commit that came in between, the row may lack that step's gradients of this trainer.
      if (version != 0 && num_commits == pulled.num_commits) table.Take(segment.ids[i], version, segment.rows + i * table.dim);
    }
  }
}

absl::Status CachedClient::Cache::CheckPush(const std::vector<PushSegment>& segments) {
  absl::MutexLock lock(&mutex);
  for (const PushSegment& segment : segments) {
    const CachedTable* const table = Find(segment.table);
    if (table == nullptr) return absl::InvalidArgumentError(absl::StrCat("there is no table ", segment.table));
    const void* const ids = segment.ids.data();
    RETURN_IF_ERROR(Router::RoundRobin(1).Split(segment.table, table->spec.name(), ids, segment.ids.size()).status());
    RETURN_IF_ERROR(CheckGradients(table->spec, ids, segment.gradients, segment.ids.size()));
  }
  return absl::OkStatus();
}

void CachedClient::Cache::AddGradients(const std::vector<PushSegment>& segments, bool cached_only) {
  absl::MutexLock lock(&mutex);
  for (const PushSegment& segment : segments) {
    CachedTable* const table = Find(segment.table);
    for (size_t i = 0; table != nullptr && i < segment.ids.size(); ++i) {
      const uint64_t id = segment.ids[i];
      if (id == 0 || (cached_only && table->rows.Find(id) == RowCache::kNone)) continue;
      table->gradients.Add(id, segment.gradients + i * table->dim);
    }
  }
}

void CachedClient::Cache::ShowGradients(const CommitArgs& args) {
  absl::MutexLock lock(&mutex);
  ++num_commits;
  last_commit = args.step;
  for (auto& [number, table] : tables) {
    for (size_t i = 0; !args.skip && i < table.gradients.ids().size(); ++i) {
      const uint32_t place = table.rows.Find(table.gradients.ids()[i]);
      if (place != RowCache::kNone) table.Show(place, table.gradients.sum(i), args);
    }
    table.gradients.Clear();
  }
}

bool CachedClient::Cache::KeepsBack() {
  absl::MutexLock lock(&mutex);
  return std::any_of(tables.begin(), tables.end(), [](const auto& table) { return !table.second.kept_rows.empty(); });
}

void CachedClient::Cache::Forget() {
  absl::MutexLock lock(&mutex);
  for (auto& [number, table] : tables) table.rows.Clear();
}

CachedClient::CachedClient(std::unique_ptr<Client> client, CachedClientOptions options)
    : ForwardingClient(std::move(client)), options_(options), cache_(std::make_shared<Cache>(options)) {}

CachedClient::~CachedClient() = default;

absl::Status CachedClient::CreateTables(const std::vector<TableSpec>& tables, absl::Duration timeout) {
  RETURN_IF_ERROR(client().CreateTables(tables, timeout));
  absl::MutexLock lock(&cache_->mutex);
  for (const TableSpec& spec : tables) {
    cache_->tables.try_emplace(spec.number(), spec, options_);
  }
  return absl::OkStatus();
}

Future<Done> CachedClient::Pull(uint64_t step, bool create, std::vector<PullSegment> segments) {
  if (step == 0) return client().Pull(step, create, std::move(segments));
  if (absl::Status refused = cache_->CheckStep(step); !refused.ok()) return Future<Done>::Ready(refused);
  const auto pulled = std::make_shared<Pulled>();
  pulled->segments = std::move(segments);
  cache_->Lookup(*pulled);
  const auto promise = std::make_shared<rpc::Promise<Done>>();
  const Future<Done> future = promise->future();
  client().Pull(step, create, pulled->segments).OnReady([cache = cache_, pulled, promise](const absl::StatusOr<Done>& done) {
    if (done.ok()) cache->TakeRows(*pulled);
    promise->Set(done);
  });
  return future;
}

Future<Done> CachedClient::Accumulate(uint64_t step, uint32_t slice, std::vector<PushSegment> segments) {
  if (options_.write_bound > 0) {
    absl::Status refused = cache_->CheckPush(segments);
    if (refused.ok()) {
      cache_->AddGradients(segments, /*cached_only=*/false);
      return Future<Done>::Ready(Done());
    }
    absl::MutexLock lock(&cache_->mutex);
    cache_->refused_push.Update(refused);
    return Future<Done>::Ready(refused);
  }
  if (options_.shows_own()) cache_->AddGradients(segments, /*cached_only=*/true);
  return client().Accumulate(step, slice, std::move(segments));
}

Future<absl::uint128> CachedClient::GradientNorm(uint64_t step) {
  if (options_.write_bound == 0) return client().GradientNorm(step);
  absl::MutexLock lock(&cache_->mutex);
  if (!cache_->refused_push.ok()) return Future<absl::uint128>::Ready(cache_->refused_push);
  double squared = 0;
  for (const auto& [number, table] : cache_->tables) {
    for (size_t i = 0; i < table.gradients.ids().size(); ++i) {
      for (size_t column = 0; column < table.dim; ++column) {
        const double value = table.gradients.sum(i)[column];
        squared += value * value;
      }
    }
  }
  return Future<absl::uint128>::Ready(ToFixedPoint(squared));
}

Future<Done> CachedClient::Commit(const CommitArgs& args) {
  if (!options_.shows_own()) return client().Commit(args);
  if (options_.write_bound == 0) cache_->ShowGradients(args);
  const Future<Done> committed = options_.write_bound == 0 ? client().Commit(args) : CommitMerged(args);
  committed.OnReady([cache = cache_](const absl::StatusOr<Done>& done) {
    if (!done.ok()) cache->Forget();
  });
  return committed;
}

Future<Done> CachedClient::CommitMerged(const CommitArgs& args) {
  struct Due {
    std::vector<uint64_t> ids;
    std::vector<float> gradients;
  };
  const auto due = std::make_shared<std::vector<Due>>();
  std::vector<PushSegment> segments;
  {
    absl::MutexLock lock(&cache_->mutex);
    if (const absl::Status refused = std::exchange(cache_->refused_push, absl::OkStatus()); !refused.ok()) {
      for (auto& [number, table] : cache_->tables) table.gradients.Clear();
      return Future<Done>::Ready(refused);
    }
    ++cache_->num_commits;
    cache_->last_commit = args.step;
    due->resize(cache_->tables.size());
    for (auto& [number, table] : cache_->tables) {
      Due& of_table = (*due)[segments.size()];
      table.TakeDue(args, options_.write_bound, &of_table.ids, &of_table.gradients);
      segments.push_back({number, of_table.ids, of_table.gradients.data()});
    }
  }
  std::erase_if(segments, [](const PushSegment& segment) { return segment.ids.empty(); });
  CommitArgs merged = args;
  if (!segments.empty()) {
    // Each gradient has its own step's scale already, and a step that is skipped does not take back what others kept.
    merged.gradient_scale = 1;
    merged.skip = false;
    client().Accumulate(args.step, /*slice=*/0, std::move(segments)).OnReady([due](const absl::StatusOr<Done>&) {});
  }
  return client().Commit(merged);
}

Future<HashResult> CachedClient::Hash() {
  if (cache_->KeepsBack()) return Future<HashResult>::Ready(absl::FailedPreconditionError("hash: gradients are kept back"));
  return client().Hash();
}

Future<std::vector<SavedFile>> CachedClient::Save(uint64_t step, const std::string& folder, absl::Time deadline) {
  if (cache_->KeepsBack()) {
    return Future<std::vector<SavedFile>>::Ready(absl::FailedPreconditionError(
        absl::StrCat("save after step ", step, ": gradients are kept back; the step's commit must flush")));
  }
  return client().Save(step, folder, deadline);
}

CachedClient::Counts CachedClient::counts() const {
  absl::MutexLock lock(&cache_->mutex);
  return cache_->counts;
}

std::string CachedClient::Report() const {
  const Counts total = counts();
  const uint64_t rows = total.hits + total.refreshes + total.misses;
  if (rows == 0) return client().Report();
  const double percent = 100.0 / static_cast<double>(rows);
  return absl::StrFormat("row cache: of %d rows pulled %.1f %% were good enough, %.1f %% too old, %.1f %% not there; "
                         "%.1f MB of rows not sent, for %.1f MB of versions",
                         rows, static_cast<double>(total.hits) * percent, static_cast<double>(total.refreshes) * percent,
                         static_cast<double>(total.misses) * percent, static_cast<double>(total.hit_bytes) * 1e-6,
                         static_cast<double>(rows * kVersionBytes) * 1e-6);
}

}  // namespace tandem::ps
