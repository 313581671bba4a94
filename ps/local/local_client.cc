#include "ps/local/local_client.h"

#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/base/status_macros.h"
#include "kernels/memory/buffer.h"

namespace tandem::ps {
namespace {

// A job in one process has no epoch. A job that loads its checkpoint is a new job, whose pushes
// count anew.
constexpr uint64_t kNoJob = 0;

// A copyable promise, for use in callbacks.
template <class T>
struct Pending {
  std::shared_ptr<rpc::Promise<T>> promise = std::make_shared<rpc::Promise<T>>();

  rpc::Future<T> future() const { return promise->future(); }
  auto SetValue(ConcurrentSpan span = {}) const {
    return [promise = promise, span](absl::StatusOr<T> value) {
      span.End();
      promise->Set(std::move(value));
    };
  }
};

TableHost::Done SetDone(const Pending<rpc::Done>& pending, ConcurrentSpan span = {}) {
  return [promise = pending.promise, span](absl::Status status) {
    span.End();
    if (status.ok())
      promise->Set(rpc::Done());
    else
      promise->Set(status);
  };
}

}  // namespace

absl::Status LocalClient::CreateTables(const std::vector<TableSpec>& tables,
                                       absl::Duration timeout) {
  Pending<rpc::Done> pending;
  const auto future = pending.future();
  host_.CreateTables(tables, num_trainers_, SetDone(pending), consistency_);
  return future.Wait(absl::Now() + timeout).status();
}

absl::Status LocalClient::Assign(const RowsToAssign& rows, absl::Time) {
  // No deadline: workers use the caller's memory, so the call must outlast them. Workers end even
  // if the host fails.
  Pending<rpc::Done> pending;
  const auto future = pending.future();
  host_.Assign(rows.table, rows.ids.data(), rows.ids.size(), rows.values, rows.width,
               SetDone(pending));
  return future.Wait(absl::InfiniteFuture()).status();
}

absl::Status LocalClient::Read(const RowsToRead& rows, absl::Time) {
  Pending<rpc::Done> pending;
  const auto future = pending.future();
  host_.Read(rows.table, rows.ids.data(), rows.ids.size(), rows.values, rows.width,
             SetDone(pending));
  return future.Wait(absl::InfiniteFuture()).status();
}

rpc::Future<rpc::Done> LocalClient::Pull(uint64_t step, bool create,
                                         std::vector<PullSegment> segments) {
  Pending<rpc::Done> pending;
  const auto future = pending.future();
  ConcurrentSpan span = tracer_.Begin(trainer_, SpanKind::PULL, "pull", step);
  std::vector<PullPart> parts;
  for (const PullSegment& segment : segments) {
    parts.push_back({segment.table, segment.ids.size(), segment.ids.data(), segment.rows,
                     segment.versions, segment.read_bound});
    if (span.recorded())
      span.AddBytes(
          static_cast<double>(CallBytes(segment.ids.size(), host_.Dim(segment.table).value_or(0))));
  }
  host_.Pull(Caller{trainer_}, step, create, parts, SetDone(pending, span), span.trace_id());
  return future;
}

rpc::Future<rpc::Done> LocalClient::Push(uint64_t step, uint32_t slice,
                                         std::vector<PushSegment> segments) {
  return PushAt({trainer_, step, slice, next_sequence_++}, segments);
}

rpc::Future<rpc::Done> LocalClient::PushMerged(uint64_t step, const std::vector<PushName>& names,
                                               std::vector<PushSegment> segments) {
  return PushAt({trainer_,
                 step,
                 0,
                 names[0].sequence,
                 names[0].incarnation,
                 {names.begin() + 1, names.end()}},
                segments);
}

rpc::Future<rpc::Done> LocalClient::PushAt(const PushPlace& place,
                                           const std::vector<PushSegment>& segments) {
  Pending<rpc::Done> pending;
  const auto future = pending.future();
  ConcurrentSpan span = tracer_.Begin(trainer_, SpanKind::PUSH, "push", place.step);
  std::vector<size_t> sizes;
  size_t num_bytes = 0;
  for (const PushSegment& segment : segments) {
    const auto dim = host_.Dim(segment.table);
    if (!dim.ok()) {
      pending.promise->Set(dim.status());
      pushes_.push_back(future);
      return future;
    }
    sizes.push_back(segment.ids.size() * *dim * sizeof(float));
    num_bytes += sizes.back();
    span.AddBytes(static_cast<double>(CallBytes(segment.ids.size(), *dim)));
  }
  const auto kept = Buffer::Allocate(num_bytes);
  char* next = static_cast<char*>(kept->data());
  std::vector<PushPart> parts;
  for (size_t i = 0; i < segments.size(); ++i) {
    if (sizes[i] != 0) std::memcpy(next, segments[i].gradients, sizes[i]);
    parts.push_back({segments[i].table, segments[i].ids.size(), segments[i].ids.data(), next});
    next += sizes[i];
  }
  host_.Accumulate(place, parts, kept, SetDone(pending, span), span.trace_id());
  pushes_.push_back(future);
  return future;
}

rpc::Future<absl::uint128> LocalClient::GradientNorm(uint64_t step) {
  Pending<absl::uint128> pending;
  const auto future = pending.future();
  const ConcurrentSpan span = tracer_.Begin(trainer_, SpanKind::COMMIT, "gradient_norm", step);
  host_.GradientNorm({trainer_}, step, pending.SetValue(span), span.trace_id());
  return future;
}

rpc::Future<rpc::Done> LocalClient::Commit(const CommitArgs& args) {
  for (const auto& push : std::exchange(pushes_, {})) {
    // A push is refused immediately or never, so an unfinished push was accepted.
    if (!push.ready()) continue;
    if (auto result = push.Wait(absl::InfinitePast()); !result.ok()) return push;
  }
  Pending<rpc::Done> pending;
  const auto future = pending.future();
  const ConcurrentSpan span = tracer_.Begin(trainer_, SpanKind::COMMIT, "commit", args.step);
  host_.Commit({trainer_}, args, SetDone(pending, span), span.trace_id());
  return future;
}

rpc::Future<HashResult> LocalClient::Hash() {
  Pending<HashResult> pending;
  const auto future = pending.future();
  host_.Hash(pending.SetValue());
  return future;
}

rpc::Future<StatisticsReply> LocalClient::Statistics() {
  Pending<StatisticsReply> pending;
  const auto future = pending.future();
  host_.Statistics(pending.SetValue());
  return future;
}

rpc::Future<std::vector<SavedFile>> LocalClient::Save(uint64_t step, const std::string& folder,
                                                      absl::Time) {
  Pending<std::vector<SavedFile>> pending;
  const auto future = pending.future();
  const ConcurrentSpan span = tracer_.Begin(trainer_, SpanKind::CHECKPOINT, "save", step);
  host_.Save(step, folder, kNoJob, pending.SetValue(span), span.trace_id());
  return future;
}

absl::StatusOr<std::vector<RoleTrace>> LocalClient::TakeTraces(absl::Duration) {
  std::vector<RoleTrace> traces;
  traces.push_back(rpc::TakeRoleTrace("ps-local", host_.tracer()));
  return traces;
}

rpc::Future<rpc::Done> LocalClient::Load(uint64_t step, const std::string& folder,
                                         const std::vector<std::string>& files, absl::Time) {
  Pending<rpc::Done> pending;
  const auto future = pending.future();
  host_.Load({step, folder, files, Router::RoundRobin(1).ShardsOf(0), kNoJob}, SetDone(pending));
  return future;
}

}  // namespace tandem::ps
