#include "ps/caching/cached_client.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "ps/wire/saturating.h"

namespace tandem::ps {
namespace {

using rpc::Done;
using rpc::Future;

// Wire bytes of a hit, in place of the row: the version sent and the version answered.
constexpr size_t kVersionBytes = 2 * sizeof(uint32_t);

}  // namespace

struct CachedClient::Cache {
  CachedTable* Find(uint32_t table) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const auto found = tables.find(table);
    return found == tables.end() ? nullptr : &found->second;
  }
  // FailedPrecondition if this trainer's updates up to step - 1 are not all committed. Returns
  // `overflow` if set.
  absl::Status CheckStep(uint64_t step);
  void Lookup(uint32_t read_bound, Pulled& pulled);
  void TakeRows(Pulled& pulled);
  absl::Status CheckPush(uint64_t step, const std::vector<PushSegment>& segments);
  void AddGradients(uint64_t step, const std::vector<PushSegment>& segments);
  void ShowGradients(const CommitArgs& args);
  // FailedPrecondition while gradients are kept back.
  absl::Status CheckFlushed(const char* what);
  // Drops cached rows after a failed step, because the state of the servers' rows is unknown.
  void ForgetRows();

  absl::Mutex mutex;
  std::map<uint32_t, CachedTable> tables ABSL_GUARDED_BY(mutex);  // by number
  uint64_t num_commits ABSL_GUARDED_BY(mutex) = 0;  // counted only if CacheOptions::shows_own()
  uint64_t last_commit ABSL_GUARDED_BY(mutex) = 0;  // step of the last such commit; 0: none yet
  Counts counts ABSL_GUARDED_BY(mutex);
  absl::Status refused_push ABSL_GUARDED_BY(mutex);  // since the last commit
  // Set when a sum of kept-back gradients overflows. The commit then never reaches the servers, and
  // the next pull would wait for it there.
  absl::Status overflow ABSL_GUARDED_BY(mutex);
};

// A pull in flight.
struct CachedClient::Pulled {
  std::vector<PullSegment> segments;
  // [segment][id] like PullSegment::versions: as sent, as answered.
  std::vector<std::vector<uint32_t>> had, versions;
  uint64_t num_commits = 0;  // commits before the pull
};

absl::Status CachedClient::Cache::CheckStep(uint64_t step) {
  absl::MutexLock lock(&mutex);
  if (!overflow.ok()) return overflow;
  if (last_commit == 0 || step == last_commit + 1) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("pull for step ", step,
                                                    " after the commit of step ", last_commit,
                                                    ": with bounds, rows are pulled step by step"));
}

void CachedClient::Cache::Lookup(uint32_t read_bound, Pulled& pulled) {
  absl::MutexLock lock(&mutex);
  pulled.num_commits = num_commits;
  for (PullSegment& segment : pulled.segments) {
    TANDEM_CHECK(segment.versions == nullptr) << "rows are kept twice";
    std::vector<uint32_t>& versions = pulled.versions.emplace_back(segment.ids.size(), 0);
    if (CachedTable* const table = Find(segment.table)) {
      table->Lookup(segment.ids, segment.rows, versions.data());
      segment.versions = versions.data();
      segment.read_bound = read_bound;
    }
    pulled.had.push_back(versions);
  }
}

void CachedClient::Cache::TakeRows(Pulled& pulled) {
  absl::MutexLock lock(&mutex);
  for (size_t s = 0; s < pulled.segments.size(); ++s) {
    const PullSegment& segment = pulled.segments[s];
    if (segment.versions == nullptr) continue;  // the table is not cached
    CachedTable& table = *Find(segment.table);
    for (size_t i = 0; i < segment.ids.size(); ++i) {
      const uint32_t had = pulled.had[s][i], version = pulled.versions[s][i];
      ++(version == 0 ? counts.hits : had != 0 ? counts.refreshes : counts.misses);
      if (version == 0) counts.hit_bytes += table.dim() * sizeof(float);
      // After a commit in between, the row may lack this trainer's gradients of that step.
      if (version != 0 && num_commits == pulled.num_commits)
        table.Take(segment.ids[i], version, segment.rows + i * table.dim());
    }
  }
}

absl::Status CachedClient::Cache::CheckPush(uint64_t step,
                                            const std::vector<PushSegment>& segments) {
  absl::MutexLock lock(&mutex);
  for (const PushSegment& segment : segments) {
    CachedTable* const table = Find(segment.table);
    if (table == nullptr)
      return absl::InvalidArgumentError(absl::StrCat("there is no table ", segment.table));
    RETURN_IF_ERROR(table->CheckPush(step, segment));
  }
  return absl::OkStatus();
}

void CachedClient::Cache::AddGradients(uint64_t step, const std::vector<PushSegment>& segments) {
  absl::MutexLock lock(&mutex);
  for (const PushSegment& segment : segments) {
    if (CachedTable* const table = Find(segment.table))
      table->AddGradients(step, segment.ids, segment.gradients);
  }
}

void CachedClient::Cache::ShowGradients(const CommitArgs& args) {
  absl::MutexLock lock(&mutex);
  ++num_commits;
  last_commit = args.step;
  for (auto& [number, table] : tables) table.ShowGradients(args);
}

absl::Status CachedClient::Cache::CheckFlushed(const char* what) {
  absl::MutexLock lock(&mutex);
  for (const auto& [number, table] : tables) {
    if (!table.keeps_back()) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(what, ": gradients of table ", table.spec().name(),
                     " are kept back; the last commit must flush"));
  }
  return absl::OkStatus();
}

void CachedClient::Cache::ForgetRows() {
  absl::MutexLock lock(&mutex);
  for (auto& [number, table] : tables) table.ForgetRows();
}

CachedClient::CachedClient(const Clients& inner, CacheOptions options)
    : ForwardingAdmin(*inner.tables),
      inner_(inner),
      options_(options),
      cache_(std::make_shared<Cache>()) {}

CachedClient::~CachedClient() = default;

absl::Status CachedClient::CreateTables(const std::vector<TableSpec>& tables,
                                        absl::Duration timeout) {
  RETURN_IF_ERROR(this->tables().CreateTables(tables, timeout));
  absl::MutexLock lock(&cache_->mutex);
  for (const TableSpec& spec : tables) cache_->tables.try_emplace(spec.number(), spec, options_);
  return absl::OkStatus();
}

Future<Done> CachedClient::Pull(uint64_t step, bool create, std::vector<PullSegment> segments) {
  if (step == 0) return inner_.rows->Pull(step, create, std::move(segments));
  if (absl::Status refused = cache_->CheckStep(step); !refused.ok())
    return Future<Done>::Ready(refused);
  const auto pulled = std::make_shared<Pulled>();
  pulled->segments = std::move(segments);
  cache_->Lookup(options_.read_bound, *pulled);
  const auto promise = std::make_shared<rpc::Promise<Done>>();
  const Future<Done> future = promise->future();
  inner_.rows->Pull(step, create, pulled->segments)
      .OnReady([cache = cache_, pulled, promise](const absl::StatusOr<Done>& done) {
        if (done.ok()) cache->TakeRows(*pulled);
        promise->Set(done);
      });
  return future;
}

Future<Done> CachedClient::Push(uint64_t step, uint32_t slice, std::vector<PushSegment> segments) {
  if (options_.write_bound == 0) {
    if (options_.shows_own()) cache_->AddGradients(step, segments);
    return inner_.rows->Push(step, slice, std::move(segments));
  }
  if (absl::Status refused = cache_->CheckPush(step, segments); !refused.ok()) {
    absl::MutexLock lock(&cache_->mutex);
    cache_->refused_push.Update(refused);
    return Future<Done>::Ready(refused);
  }
  cache_->AddGradients(step, segments);
  return Future<Done>::Ready(Done());
}

Future<Done> CachedClient::PullPooled(uint64_t step, bool create, const Bags& bags, size_t dim,
                                      float* pooled) {
  if (!options_.shows_own()) return inner_.pooled->PullPooled(step, create, bags, dim, pooled);
  return PullAndPool(*this, step, create, bags, dim, pooled);
}

Future<Done> CachedClient::PushPooled(uint64_t step, uint32_t slice, const Bags& bags, size_t dim,
                                      const float* gradients) {
  if (!options_.shows_own()) return inner_.pooled->PushPooled(step, slice, bags, dim, gradients);
  return PushToBags(*this, step, slice, bags, dim, gradients);
}

Future<absl::uint128> CachedClient::GradientNorm(uint64_t step) {
  if (options_.write_bound == 0) return inner_.rows->GradientNorm(step);
  absl::MutexLock lock(&cache_->mutex);
  if (!cache_->refused_push.ok()) return Future<absl::uint128>::Ready(cache_->refused_push);
  double squared = 0;
  for (const auto& [number, table] : cache_->tables) squared += table.GradientSquaredNorm();
  return Future<absl::uint128>::Ready(ToFixedPoint(squared));
}

Future<Done> CachedClient::Commit(const CommitArgs& args) {
  if (!options_.shows_own()) return inner_.rows->Commit(args);
  if (options_.write_bound == 0) cache_->ShowGradients(args);
  const Future<Done> committed =
      options_.write_bound == 0 ? inner_.rows->Commit(args) : CommitMerged(args);
  committed.OnReady([cache = cache_](const absl::StatusOr<Done>& done) {
    if (!done.ok()) cache->ForgetRows();
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
    if (!cache_->overflow.ok()) return Future<Done>::Ready(cache_->overflow);
    if (const absl::Status refused = std::exchange(cache_->refused_push, absl::OkStatus());
        !refused.ok()) {
      for (auto& [number, table] : cache_->tables) table.DropGradients();
      return Future<Done>::Ready(refused);
    }
    ++cache_->num_commits;
    cache_->last_commit = args.step;
    due->resize(cache_->tables.size());
    for (auto& [number, table] : cache_->tables) {
      Due& of_table = (*due)[segments.size()];
      table.KeepGradients(args, &of_table.ids, &of_table.gradients);
      cache_->overflow.Update(table.CheckDue(args, of_table.ids, of_table.gradients));
      segments.push_back({number, of_table.ids, of_table.gradients.data()});
    }
    if (!cache_->overflow.ok()) return Future<Done>::Ready(cache_->overflow);
  }
  std::erase_if(segments, [](const PushSegment& segment) { return segment.ids.empty(); });
  if (segments.empty()) return inner_.rows->Commit(args);
  // Each gradient already carries its own step's scale. A skipped step does not withdraw gradients
  // that earlier steps kept back.
  CommitArgs merged = args;
  merged.gradient_scale = 1;
  merged.skip = false;
  // The push reads `due` until it is acknowledged. Its error is the commit's error too.
  inner_.rows->Push(args.step, /*slice=*/0, std::move(segments))
      .OnReady([due](const absl::StatusOr<Done>&) {});
  return inner_.rows->Commit(merged);
}

Future<HashResult> CachedClient::Hash() {
  if (absl::Status refused = cache_->CheckFlushed("hash"); !refused.ok())
    return Future<HashResult>::Ready(refused);
  return tables().Hash();
}

StatisticsReply CachedClient::OwnStatistics() const {
  StatisticsReply own;
  absl::MutexLock lock(&cache_->mutex);
  for (const auto& [number, table] : cache_->tables)
    *own.add_tables() = GuardStatistics(table.spec(), table.guarded());
  return own;
}

Future<std::vector<SavedFile>> CachedClient::Save(uint64_t step, const std::string& folder,
                                                  absl::Time deadline) {
  if (absl::Status refused = cache_->CheckFlushed("save"); !refused.ok()) {
    return Future<std::vector<SavedFile>>::Ready(refused);
  }
  return tables().Save(step, folder, deadline);
}

CachedClient::Counts CachedClient::counts() const {
  absl::MutexLock lock(&cache_->mutex);
  return cache_->counts;
}

std::vector<std::string> CachedClient::Report() const {
  std::vector<std::string> lines = tables().Report();
  const Counts total = counts();
  const uint64_t rows = total.hits + total.refreshes + total.misses;
  if (rows == 0) return lines;
  const double percent = 100.0 / static_cast<double>(rows);
  lines.push_back(absl::StrFormat(
      "row cache: of %d rows pulled %.1f %% were good enough, %.1f %% too old, %.1f %% not there; "
      "%.1f MB of rows not sent, for %.1f MB of versions",
      rows, static_cast<double>(total.hits) * percent,
      static_cast<double>(total.refreshes) * percent, static_cast<double>(total.misses) * percent,
      static_cast<double>(total.hit_bytes) * 1e-6,
      static_cast<double>(rows * kVersionBytes) * 1e-6));
  return lines;
}

}  // namespace tandem::ps
