// The verbs of a step on rows by id: pull them, push gradients, commit the step. RemoteClient shards tables over servers, LocalClient has
// them in this process, and both give the same bits. The clients of ps/caching wrap another RowClient.
// Thread rule: one thread calls; futures complete on others; Abort from any thread. Buffers given to a call stay alive and untouched
// until its future completes.
#pragma once

#include <cstdint>
#include <memory>
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
  // For a caller that keeps rows, [ids.size()]: the version + 1 of the row that it has, 0 for none. A row is then written only if it was
  // committed more than `read_bound` times since. Afterwards: the version + 1 of the row written, 0 where none was. Null: all are written.
  uint32_t* versions = nullptr;
  uint32_t read_bound = 0;
};

// Part of a push: gradients [ids.size(), dim], one row per id.
struct PushSegment {
  uint32_t table = 0;
  absl::Span<const uint64_t> ids;  // distinct, none 0
  const float* gradients = nullptr;
  // Keeps the gradients alive. They may be sent from where they lie: nobody writes to them before the last copy of the owner has gone,
  // which may be later than the push completes. Null: what is needed later is copied.
  std::shared_ptr<const void> owner = nullptr;
};

class RowClient {
 public:
  virtual ~RowClient() = default;

  // Pulls rows as they are after step - 1 was applied on their server, or as stale as the job's consistency allows. Step 0: as they are
  // now.
  virtual rpc::Future<rpc::Done> Pull(uint64_t step, bool create, std::vector<PullSegment> segments) = 0;
  // Adds gradients to those of `step`. `slice` is this push's place in the step's summation order.
  virtual rpc::Future<rpc::Done> Push(uint64_t step, uint32_t slice, std::vector<PushSegment> segments) = 0;
  // Squared norm of the gradients that all trainers pushed for `step`, summed per row. Unsigned fixed point, 64 fraction bits. Every
  // trainer calls it, after its own pushes completed, or none does. In modes other than BSP (see ConsistencySpec) the norm is of this
  // trainer's gradients, and waits for nobody.
  virtual rpc::Future<absl::uint128> GradientNorm(uint64_t step) = 0;
  // Completes when every server has applied the step, which in BSP needs the commit of every trainer. In the order of steps: not before
  // the last commit has completed.
  virtual rpc::Future<rpc::Done> Commit(const CommitArgs& args) = 0;
  // Fails everything in flight and to come with `reason`.
  virtual void Abort(absl::Status reason) = 0;

  // Push and Commit of a step that is pushed at once, which a client may send as one message. Fails as either. By default both verbs are
  // called one behind the other.
  virtual rpc::Future<rpc::Done> PushAndCommit(uint32_t slice, std::vector<PushSegment> segments, const CommitArgs& args);
};

}  // namespace tandem::ps
