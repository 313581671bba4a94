#include "ps/caching/geo_client.h"

#include <cstring>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "ps/caching/copied_table.h"
#include "ps/store/spec_check.h"
#include "ps/wire/saturating.h"

namespace tandem::ps {
namespace {

using rpc::Done;
using rpc::Future;

}  // namespace

struct GeoClient::Copies {
  CopiedTable* Find(uint32_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const auto found = tables.find(number);
    return found == tables.end() ? nullptr : &found->second;
  }
  absl::Status CheckPush(uint32_t trainer, uint64_t step, const std::vector<PushSegment>& segments)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Makes the pulled rows this trainer's copies, if the window of the pull has not ended.
  void Take(uint64_t step, const std::vector<PullSegment>& segments, uint64_t window,
            std::vector<MissingRows>& fetched);
  // FailedPrecondition while there are updates that servers do not know.
  absl::Status CheckFlushed(const char* what);

  absl::Mutex mutex;
  std::map<uint32_t, CopiedTable> tables ABSL_GUARDED_BY(mutex);  // by number
  uint64_t last_commit ABSL_GUARDED_BY(mutex) = 0;                // step; 0: none yet
  uint64_t num_windows ABSL_GUARDED_BY(mutex) = 0;                // windows that have ended
  uint64_t num_pushes ABSL_GUARDED_BY(mutex) = 0;
  // True: there are updates that servers do not know.
  bool has_updates ABSL_GUARDED_BY(mutex) = false;
  absl::Status refused_push ABSL_GUARDED_BY(mutex);  // since the last commit
  // Set by a commit that overflows, after which the copies are useless. The commit never reaches
  // the servers, and the next pull would wait for it there.
  absl::Status overflow ABSL_GUARDED_BY(mutex);
  uint64_t rows_used ABSL_GUARDED_BY(mutex) = 0, rows_fetched ABSL_GUARDED_BY(mutex) = 0,
                     rows_pushed ABSL_GUARDED_BY(mutex) = 0;
};

absl::Status GeoClient::Copies::CheckPush(uint32_t trainer, uint64_t step,
                                          const std::vector<PushSegment>& segments) {
  for (const PushSegment& segment : segments) {
    CopiedTable* const table = Find(segment.table);
    if (table == nullptr)
      return absl::InvalidArgumentError(absl::StrCat("there is no table ", segment.table));
    RETURN_IF_ERROR(table->CheckPush(trainer, step, segment));
  }
  return absl::OkStatus();
}

void GeoClient::Copies::Take(uint64_t step, const std::vector<PullSegment>& segments,
                             uint64_t window, std::vector<MissingRows>& fetched) {
  absl::MutexLock lock(&mutex);
  for (size_t s = 0; s < segments.size(); ++s) {
    CopiedTable& table = *Find(segments[s].table);
    // Rows pulled in the previous window may lack its deltas.
    if (window == num_windows) table.Enter(step, fetched[s]);
    for (size_t i = 0; i < fetched[s].ids.size(); ++i) {
      std::memcpy(segments[s].rows + fetched[s].places[i] * table.dim(),
                  fetched[s].rows.data() + i * table.dim(), table.dim() * sizeof(float));
    }
  }
}

absl::Status GeoClient::Copies::CheckFlushed(const char* what) {
  absl::MutexLock lock(&mutex);
  if (!has_updates) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(what, ": deltas of the steps up to ",
                                                    last_commit,
                                                    " are not pushed; the last commit must flush"));
}

GeoClient::GeoClient(const Clients& inner, GeoClientOptions options)
    : ForwardingAdmin(*inner.tables),
      inner_(inner),
      options_(options),
      copies_(std::make_shared<Copies>()) {
  TANDEM_CHECK_GE(options_.geo_steps, uint64_t{1});
  TANDEM_CHECK_GE(options_.num_trainers, 1u);
}

GeoClient::~GeoClient() = default;

TableSpec GeoClient::StoredSpec(const TableSpec& table) const {
  TableSpec spec;
  spec.set_name(table.name());
  spec.set_number(table.number());
  spec.set_dim(table.dim());
  spec.set_optimizer(SPARSE_SGD);
  spec.set_init_stddev(table.init_stddev());
  spec.set_seed(table.seed());
  spec.set_storage(table.storage());
  return spec;
}

absl::Status GeoClient::CreateTables(const std::vector<TableSpec>& tables, absl::Duration timeout) {
  std::vector<TableSpec> stored;
  for (const TableSpec& spec : tables) {
    RETURN_IF_ERROR(CheckTableSpec(spec));
    stored.push_back(StoredSpec(spec));
  }
  RETURN_IF_ERROR(this->tables().CreateTables(stored, timeout));
  absl::MutexLock lock(&copies_->mutex);
  for (const TableSpec& spec : tables) copies_->tables.try_emplace(spec.number(), spec);
  return absl::OkStatus();
}

Future<Done> GeoClient::Pull(uint64_t step, bool create, std::vector<PullSegment> segments) {
  if (step == 0) return inner_.rows->Pull(step, create, std::move(segments));
  const auto missing = std::make_shared<std::vector<MissingRows>>();
  std::vector<PullSegment> fetches;
  uint64_t window = 0;
  {
    absl::MutexLock lock(&copies_->mutex);
    if (!copies_->overflow.ok()) return Future<Done>::Ready(copies_->overflow);
    if (copies_->last_commit != 0 && step != copies_->last_commit + 1) {
      return Future<Done>::Ready(absl::FailedPreconditionError(
          absl::StrCat("pull for step ", step, " after the commit of step ", copies_->last_commit,
                       ": copies are pulled step by step")));
    }
    window = copies_->num_windows;
    for (const PullSegment& segment : segments) {
      CopiedTable* const table = copies_->Find(segment.table);
      if (table == nullptr) {
        return Future<Done>::Ready(
            absl::InvalidArgumentError(absl::StrCat("there is no table ", segment.table)));
      }
      MissingRows& rows = missing->emplace_back(table->Read(step, segment));
      copies_->rows_used += segment.ids.size();
      copies_->rows_fetched += rows.ids.size();
      if (!rows.ids.empty()) fetches.push_back({segment.table, rows.ids, rows.rows.data()});
    }
  }
  if (fetches.empty()) return Future<Done>::Ready(Done());
  const auto promise = std::make_shared<rpc::Promise<Done>>();
  const Future<Done> future = promise->future();
  inner_.rows->Pull(step, create, std::move(fetches))
      .OnReady([copies = copies_, step, segments = std::move(segments), window, missing,
                promise](const absl::StatusOr<Done>& done) {
        if (done.ok()) copies->Take(step, segments, window, *missing);
        promise->Set(done);
      });
  return future;
}

Future<Done> GeoClient::Push(uint64_t step, uint32_t slice, std::vector<PushSegment> segments) {
  absl::MutexLock lock(&copies_->mutex);
  if (absl::Status refused = copies_->CheckPush(options_.trainer, step, segments); !refused.ok()) {
    refused =
        absl::Status(refused.code(), absl::StrCat("push for step ", step, ": ", refused.message()));
    copies_->refused_push.Update(refused);
    return Future<Done>::Ready(refused);
  }
  const uint64_t order = uint64_t{options_.trainer} << kSequenceBits | copies_->num_pushes;
  for (const PushSegment& segment : segments)
    copies_->Find(segment.table)->Accumulate(slice, order, segment);
  ++copies_->num_pushes;
  return Future<Done>::Ready(Done());
}

Future<absl::uint128> GeoClient::GradientNorm(uint64_t) {
  absl::MutexLock lock(&copies_->mutex);
  if (!copies_->refused_push.ok()) return Future<absl::uint128>::Ready(copies_->refused_push);
  absl::uint128 total = 0;
  for (auto& [number, table] : copies_->tables) total = SaturatingAdd(total, table.GradientNorm());
  return Future<absl::uint128>::Ready(total);
}

Future<Done> GeoClient::Commit(const CommitArgs& args) {
  struct Delta {
    std::vector<uint64_t> ids;
    std::vector<float> gradients;
  };
  const auto deltas = std::make_shared<std::vector<Delta>>();
  std::vector<PushSegment> segments;
  CommitArgs servers{args.step, {}, 1, false, args.flush};
  CommitArgs mine = args;
  mine.gradient_scale *= static_cast<float>(options_.num_trainers);
  {
    absl::MutexLock lock(&copies_->mutex);
    if (!copies_->overflow.ok()) return Future<Done>::Ready(copies_->overflow);
    const absl::Status refused = std::exchange(copies_->refused_push, absl::OkStatus());
    mine.skip |= !refused.ok();
    for (auto& [number, table] : copies_->tables) {
      copies_->has_updates |= table.Commit(mine);
      copies_->overflow.Update(table.overflow());
    }
    if (!refused.ok()) return Future<Done>::Ready(refused);
    if (!copies_->overflow.ok()) return Future<Done>::Ready(copies_->overflow);
    copies_->last_commit = args.step;
    const bool ends_window = args.flush || args.step % options_.geo_steps == 0;
    deltas->resize(copies_->tables.size());
    for (auto& [number, table] : copies_->tables) {
      Delta& delta = (*deltas)[servers.rates.size()];
      servers.rates.push_back({number, 1});
      if (ends_window) {
        copies_->overflow.Update(table.TakeDeltas(args, options_.trainer, options_.num_trainers,
                                                  &delta.ids, &delta.gradients));
      }
      if (!delta.ids.empty()) segments.push_back({number, delta.ids, delta.gradients.data()});
      copies_->rows_pushed += delta.ids.size();
    }
    if (!copies_->overflow.ok()) return Future<Done>::Ready(copies_->overflow);
    if (ends_window) {
      ++copies_->num_windows;
      copies_->has_updates = false;
    }
  }
  if (segments.empty()) return inner_.rows->Commit(servers);
  // The push reads `deltas` until it is acknowledged. Its error is the commit's error too.
  inner_.rows->Push(args.step, /*slice=*/0, std::move(segments))
      .OnReady([deltas](const absl::StatusOr<Done>&) {});
  return inner_.rows->Commit(servers);
}

Future<HashResult> GeoClient::Hash() {
  if (absl::Status refused = copies_->CheckFlushed("hash"); !refused.ok())
    return Future<HashResult>::Ready(refused);
  return tables().Hash();
}

StatisticsReply GeoClient::OwnStatistics() const {
  StatisticsReply own;
  absl::MutexLock lock(&copies_->mutex);
  for (const auto& [number, table] : copies_->tables)
    *own.add_tables() = GuardStatistics(table.spec(), table.guarded());
  return own;
}

Future<std::vector<SavedFile>> GeoClient::Save(uint64_t step, const std::string& folder,
                                               absl::Time deadline) {
  if (absl::Status refused = copies_->CheckFlushed("save"); !refused.ok()) {
    return Future<std::vector<SavedFile>>::Ready(refused);
  }
  return tables().Save(step, folder, deadline);
}

std::vector<std::string> GeoClient::Report() const {
  std::vector<std::string> lines = tables().Report();
  absl::MutexLock lock(&copies_->mutex);
  if (copies_->rows_used == 0) return lines;
  size_t num_rows = 0, bytes = 0;
  for (const auto& [number, table] : copies_->tables) {
    num_rows += table.num_rows();
    bytes += table.memory_bytes();
  }
  lines.push_back(absl::StrFormat(
      "local steps: of %d rows used %d were pulled and %d pushed; copies of %d rows take %.1f MB",
      copies_->rows_used, copies_->rows_fetched, copies_->rows_pushed, num_rows,
      static_cast<double>(bytes) * 1e-6));
  return lines;
}

}  // namespace tandem::ps
