#include "ps/client_geo.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "kernels/base/buffer.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "ps/router.h"
#include "ps/row_index.h"
#include "ps/saturating.h"
#include "ps/table.h"

namespace tandem::ps {
namespace {

using rpc::Done;
using rpc::Future;

// Of a pull's segment, what the window lacks.
struct Missing {
  std::vector<uint64_t> ids;
  std::vector<uint32_t> places;  // in the segment
  std::vector<float> rows;
};

TableSpec SpecOfCopies(TableSpec spec) {
  spec.set_storage(STORED_F32);
  return spec;
}

}  // namespace

struct GeoClient::Copies {
  // The copies of one table's rows, and the window: which of them are in use, and what they were when they came.
  struct CopiedTable {
    explicit CopiedTable(const TableSpec& spec) : table(SpecOfCopies(spec)), dim(spec.dim()) {}

    // Writes the window's rows; what it lacks goes into `missing`.
    void Read(const PullSegment& segment, Missing* missing);
    // Rows as the servers have them. One that the window has already stays as it is, and `rows` becomes it.
    void Enter(Missing& fetched);
    void ApplyPending(const CommitArgs& args, float rate, float scale);
    // What the updated rows' gradients are in the servers' tables. The window ends.
    void TakeDeltas(uint32_t num_trainers, std::vector<uint64_t>* ids, std::vector<float>* gradients);

    Table table;
    const size_t dim;
    RowIndex window;  // id -> place in the three below
    std::vector<uint64_t> ids;
    std::vector<float> first_values;  // [ids, dim]
    std::vector<bool> updated;
    std::vector<uint64_t> pending;  // places with gradients in the open step
  };

  absl::StatusOr<CopiedTable*> Find(uint32_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const auto found = tables.find(number);
    if (found == tables.end()) return absl::InvalidArgumentError(absl::StrCat("there is no table ", number));
    return found->second.get();
  }
  absl::Status CheckPush(const std::vector<PushSegment>& segments) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  absl::Mutex mutex;
  std::map<uint32_t, std::unique_ptr<CopiedTable>> tables ABSL_GUARDED_BY(mutex);  // by number
  uint64_t last_commit ABSL_GUARDED_BY(mutex) = 0;                                // step; 0: none yet
  uint64_t num_windows ABSL_GUARDED_BY(mutex) = 0;                                // that have ended
  uint64_t num_pushes ABSL_GUARDED_BY(mutex) = 0;                                 // in the order of sums
  absl::Status refused_push ABSL_GUARDED_BY(mutex);                               // since the last commit
  bool has_updates ABSL_GUARDED_BY(mutex) = false;                                // that servers do not know
  uint64_t rows_used ABSL_GUARDED_BY(mutex) = 0, rows_fetched ABSL_GUARDED_BY(mutex) = 0, rows_pushed ABSL_GUARDED_BY(mutex) = 0;
};

void GeoClient::Copies::CopiedTable::Read(const PullSegment& segment, Missing* missing) {
  std::vector<uint64_t> here;
  std::vector<uint32_t> places;
  for (uint32_t i = 0; i < segment.ids.size(); ++i) {
    const uint64_t id = segment.ids[i];
    const bool in_window = id != 0 && window.Find(id) != RowIndex::kAbsent;
    (in_window ? here : missing->ids).push_back(id);
    (in_window ? places : missing->places).push_back(i);
  }
  table.Pull(here, /*create=*/false, segment.rows, places);
  missing->rows.resize(missing->ids.size() * dim);
}

void GeoClient::Copies::CopiedTable::Enter(Missing& fetched) {
  std::vector<float> unused(fetched.rows.size());
  table.Pull(fetched.ids, /*create=*/true, unused.data());
  for (size_t i = 0; i < fetched.ids.size(); ++i) {
    float* const row = fetched.rows.data() + i * dim;
    char* const weights = table.Find(fetched.ids[i]).weights;
    if (!window.FindOrInsert(fetched.ids[i], ids.size()).second) {
      std::memcpy(row, weights, dim * sizeof(float));
      continue;
    }
    ids.push_back(fetched.ids[i]);
    updated.push_back(false);
    first_values.insert(first_values.end(), row, row + dim);
    std::memcpy(weights, row, dim * sizeof(float));
  }
}

void GeoClient::Copies::CopiedTable::ApplyPending(const CommitArgs& args, float rate, float scale) {
  table.Commit(args.step, rate, scale, args.skip);
  for (const uint64_t place : pending) {
    if (!args.skip) updated[place] = true;
  }
  pending.clear();
}

void GeoClient::Copies::CopiedTable::TakeDeltas(uint32_t num_trainers, std::vector<uint64_t>* updated_ids, std::vector<float>* gradients) {
  for (size_t place = 0; place < ids.size(); ++place) {
    if (updated[place]) updated_ids->push_back(ids[place]);
  }
  std::sort(updated_ids->begin(), updated_ids->end());  // which makes them short on the wire
  for (const uint64_t id : *updated_ids) {
    const size_t place = window.Find(id);
    const float* const first = first_values.data() + place * dim;
    const float* const last = reinterpret_cast<const float*>(table.Find(ids[place]).weights);
    for (size_t i = 0; i < dim; ++i) gradients->push_back((first[i] - last[i]) / static_cast<float>(num_trainers));
  }
  window.Clear();
  ids.clear();
  first_values.clear();
  updated.clear();
}

absl::Status GeoClient::Copies::CheckPush(const std::vector<PushSegment>& segments) {
  for (const PushSegment& segment : segments) {
    ASSIGN_OR_RETURN(const CopiedTable* const copied, Find(segment.table));
    const TableSpec& spec = copied->table.spec();
    const void* const ids = segment.ids.data();
    RETURN_IF_ERROR(Router::RoundRobin(1).Split(segment.table, spec.name(), ids, segment.ids.size()).status());
    for (const uint64_t id : segment.ids) {
      if (copied->window.Find(id) != RowIndex::kAbsent) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("table ", spec.name(), ": the row of id ", id, " was not pulled since deltas were pushed"));
    }
    RETURN_IF_ERROR(CheckGradients(spec, ids, segment.gradients, segment.ids.size()));
  }
  return absl::OkStatus();
}

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

GeoClient::GeoClient(std::unique_ptr<Client> client, GeoClientOptions options)
    : ForwardingClient(std::move(client)), options_(std::move(options)), copies_(std::make_shared<Copies>()) {
  TANDEM_CHECK_GE(options_.geo_steps, uint64_t{1});
  TANDEM_CHECK_GE(options_.num_trainers, 1u);
}

GeoClient::~GeoClient() = default;

absl::Status GeoClient::CreateTables(const std::vector<TableSpec>& tables, absl::Duration timeout) {
  std::vector<TableSpec> stored;
  for (const TableSpec& spec : tables) {
    RETURN_IF_ERROR(CheckTableSpec(spec));
    stored.push_back(StoredSpec(spec));
  }
  RETURN_IF_ERROR(client().CreateTables(stored, timeout));
  absl::MutexLock lock(&copies_->mutex);
  for (const TableSpec& spec : tables) {
    auto& copied = copies_->tables[spec.number()];
    if (copied == nullptr) copied = std::make_unique<Copies::CopiedTable>(spec);
  }
  return absl::OkStatus();
}

Future<Done> GeoClient::Pull(uint64_t step, bool create, std::vector<PullSegment> segments) {
  if (step == 0) return client().Pull(step, create, std::move(segments));
  const auto missing = std::make_shared<std::vector<Missing>>(segments.size());
  std::vector<PullSegment> fetches;
  uint64_t window = 0;
  {
    absl::MutexLock lock(&copies_->mutex);
    if (copies_->last_commit != 0 && step != copies_->last_commit + 1) {
      return Future<Done>::Ready(absl::FailedPreconditionError(
          absl::StrCat("pull for step ", step, " after the commit of step ", copies_->last_commit, ": copies are pulled step by step")));
    }
    window = copies_->num_windows;
    for (size_t s = 0; s < segments.size(); ++s) {
      const auto copied = copies_->Find(segments[s].table);
      if (!copied.ok()) return Future<Done>::Ready(copied.status());
      Missing& lacking = (*missing)[s];
      (*copied)->Read(segments[s], &lacking);
      copies_->rows_used += segments[s].ids.size();
      copies_->rows_fetched += lacking.ids.size();
      if (!lacking.ids.empty()) fetches.push_back({segments[s].table, lacking.ids, lacking.rows.data()});
    }
  }
  if (fetches.empty()) return Future<Done>::Ready(Done());
  const auto promise = std::make_shared<rpc::Promise<Done>>();
  const Future<Done> future = promise->future();
  const auto take = [copies = copies_, missing, segments, window] {
    absl::MutexLock lock(&copies->mutex);
    for (size_t s = 0; s < segments.size(); ++s) {
      Missing& fetched = (*missing)[s];
      if (fetched.ids.empty()) continue;
      Copies::CopiedTable& copied = *copies->tables[segments[s].table];
      // Rows that were asked for in the window before may lack its deltas.
      if (window == copies->num_windows) copied.Enter(fetched);
      for (size_t i = 0; i < fetched.ids.size(); ++i) {
        std::memcpy(segments[s].rows + fetched.places[i] * copied.dim, fetched.rows.data() + i * copied.dim,
                    copied.dim * sizeof(float));
      }
    }
  };
  client().Pull(step, create, std::move(fetches)).OnReady([take, promise](const absl::StatusOr<Done>& done) {
    if (done.ok()) take();
    promise->Set(done);
  });
  return future;
}

Future<Done> GeoClient::Accumulate(uint64_t step, uint32_t slice, std::vector<PushSegment> segments) {
  absl::MutexLock lock(&copies_->mutex);
  if (absl::Status refused = copies_->CheckPush(segments); !refused.ok()) {
    refused = absl::Status(refused.code(), absl::StrCat("push for step ", step, ": ", refused.message()));
    copies_->refused_push.Update(refused);
    return Future<Done>::Ready(refused);
  }
  for (const PushSegment& segment : segments) {
    Copies::CopiedTable& copied = **copies_->Find(segment.table);
    const auto gradients = Buffer::Allocate(segment.ids.size() * copied.dim * sizeof(float));
    if (!segment.ids.empty()) std::memcpy(gradients->data(), segment.gradients, gradients->num_bytes());
    copied.table.Accumulate(slice, copies_->num_pushes, segment.ids, gradients->data(), gradients);
    for (const uint64_t id : segment.ids) copied.pending.push_back(copied.window.Find(id));
  }
  ++copies_->num_pushes;
  return Future<Done>::Ready(Done());
}

Future<absl::uint128> GeoClient::GradientNorm(uint64_t) {
  absl::MutexLock lock(&copies_->mutex);
  if (!copies_->refused_push.ok()) return Future<absl::uint128>::Ready(copies_->refused_push);
  absl::uint128 total = 0;
  for (auto& [number, copied] : copies_->tables) total = SaturatingAdd(total, copied->table.GradientNorm());
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
  const bool ends_window = args.flush || args.step % options_.geo_steps == 0;
  {
    absl::MutexLock lock(&copies_->mutex);
    const absl::Status refused = std::exchange(copies_->refused_push, absl::OkStatus());
    deltas->reserve(copies_->tables.size());
    for (auto& [number, copied] : copies_->tables) {
      CommitArgs applied = args;
      applied.skip = args.skip || !refused.ok();
      copies_->has_updates |= !applied.skip && !copied->pending.empty();
      copied->ApplyPending(applied, args.RateOf(number), args.gradient_scale * static_cast<float>(options_.num_trainers));
      servers.rates.push_back({number, 1});
      if (!ends_window || !refused.ok()) continue;
      Delta& delta = deltas->emplace_back();
      copied->TakeDeltas(options_.num_trainers, &delta.ids, &delta.gradients);
      copies_->rows_pushed += delta.ids.size();
      if (!delta.ids.empty()) segments.push_back({number, delta.ids, delta.gradients.data()});
    }
    if (!refused.ok()) return Future<Done>::Ready(refused);
    copies_->last_commit = args.step;
    if (ends_window) {
      ++copies_->num_windows;
      copies_->has_updates = false;
    }
  }
  if (!segments.empty()) {
    client().Accumulate(args.step, /*slice=*/0, std::move(segments)).OnReady([deltas](const absl::StatusOr<Done>&) {});
  }
  return client().Commit(servers);
}

Future<HashResult> GeoClient::Hash() {
  {
    absl::MutexLock lock(&copies_->mutex);
    if (copies_->has_updates) {
      return Future<HashResult>::Ready(absl::FailedPreconditionError("hash: deltas are not pushed yet"));
    }
  }
  return client().Hash();
}

Future<std::vector<SavedFile>> GeoClient::Save(uint64_t step, const std::string& folder, absl::Time deadline) {
  {
    absl::MutexLock lock(&copies_->mutex);
    if (copies_->has_updates) {
      return Future<std::vector<SavedFile>>::Ready(absl::FailedPreconditionError(
          absl::StrCat("save after step ", step, ": deltas are not pushed yet; the step's commit must flush")));
    }
  }
  return client().Save(step, folder, deadline);
}

std::string GeoClient::Report() const {
  absl::MutexLock lock(&copies_->mutex);
  size_t num_rows = 0, bytes = 0;
  for (const auto& [number, copied] : copies_->tables) {
    num_rows += copied->table.num_rows();
    bytes += copied->table.memory_bytes();
  }
  if (copies_->rows_used == 0) return client().Report();
  return absl::StrFormat("local steps: of %d rows used %d were pulled and %d pushed; copies of %d rows take %.1f MB", copies_->rows_used,
                         copies_->rows_fetched, copies_->rows_pushed, num_rows, static_cast<double>(bytes) * 1e-6);
}

}  // namespace tandem::ps
