// The verbs of a step on rows by id: pull rows, push gradients, commit the step. RemoteClient
// shards tables over servers. LocalClient has the tables in this process. Both give the same bits.
// The clients of ps/caching wrap another RowClient.
// Thread rule: one thread calls; futures complete on other threads; any thread may call Abort.
// REQUIRES: buffers given to a call stay alive and untouched until its future completes.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/numeric/int128.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "ps/wire/step.h"
#include "rpc/future.h"

namespace tandem::ps {

// Part of a pull: rows of one table, written to `rows` [ids.size(), dim] in the order of `ids`.
struct PullSegment {
  uint32_t table = 0;
  absl::Span<const uint64_t> ids;  // distinct, none 0
  float* rows = nullptr;
  // For callers that keep rows, [ids.size()]. In: the version + 1 of the row that the caller has, 0
  // for none. A row is then written only if committed more than `read_bound` times since that
  // version. Out: the version + 1 of the row written, 0 if none was. Null: all rows are written.
  uint32_t* versions = nullptr;
  uint32_t read_bound = 0;
};

// Part of a push: gradients [ids.size(), dim], one row per id.
struct PushSegment {
  uint32_t table = 0;
  absl::Span<const uint64_t> ids;  // distinct, none 0
  const float* gradients = nullptr;
};

class RowClient {
 public:
  virtual ~RowClient() = default;

  // Pulls rows as they are after their server applied step - 1, or as stale as the job's
  // consistency allows. Step 0 pulls the current rows.
  virtual rpc::Future<rpc::Done> Pull(uint64_t step, bool create,
                                      std::vector<PullSegment> segments) = 0;
  // Adds gradients to the gradients of `step`. `slice` is this push's place in the step's summation
  // order.
  virtual rpc::Future<rpc::Done> Push(uint64_t step, uint32_t slice,
                                      std::vector<PushSegment> segments) = 0;
  // Returns the squared norm of the gradients that all trainers pushed for `step`, summed per row.
  // The format is unsigned fixed point with 64 fraction bits.
  // Outside BSP (see ConsistencySpec) the norm covers only this trainer's gradients and waits for
  // nobody.
  // REQUIRES: every trainer calls, after its own pushes completed, or none does.
  virtual rpc::Future<absl::uint128> GradientNorm(uint64_t step) = 0;
  // Completes when every server has applied the step. In BSP a step needs the commit of every
  // trainer.
  // Commits complete in the order of steps.
  virtual rpc::Future<rpc::Done> Commit(const CommitArgs& args) = 0;
  // Fails all calls in flight and all later calls with `reason`.
  virtual void Abort(absl::Status reason) = 0;
};

}  // namespace tandem::ps
