// A client that adds up gradients over a host's trainers before the push, so that servers get one
// row per id. BytePS and Persia merge within a machine too; here the merge is exact. A trainer
// holds a step's pushes until its GradientNorm or Commit. Then each id goes to one of the host's
// trainers, chosen by the id's virtual shard. That trainer adds the rows up in f32 in the servers'
// order: (slice, trainer, sequence, position). It pushes the sums, so servers have one addend per
// row. With all trainers on one host and f32 messages, every bit equals the run without merging.
// The exception is a row's frequency, which counts pushed gradients.
// Thread rule: same as RowClient. GradientNorm, or else Commit, blocks until the trainers have
// exchanged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "proto/embedding.pb.h"
#include "ps/caching/forwarding_admin.h"
#include "ps/caching/trainer_exchange.h"
#include "ps/client/call_tracer.h"
#include "ps/client/clients.h"
#include "ps/client/merged_pushes.h"
#include "ps/wire/router.h"

namespace tandem::ps {

struct MergeOptions {
  // Approximate bytes of ids and f32 rows in one push, over all servers.
  size_t push_bytes = size_t{1} << 20;
};

// All pushes of a trainer in a step share one name (trainer, incarnation, sequence). A merged push
// lists every name that it covers (PushRequest.covered). A push that arrives twice, from any
// sender, therefore counts once. A trainer that dies before its share is pushed never commits. The
// step then fails for all trainers, and none of it is applied.
// A gradient that is not finite goes to its server unmerged. The server refuses or counts it under
// its trainer's name. With CLIP, only the non-finite numbers go unmerged. If finite numbers add up
// to an infinity, errors name the merging trainer.
// Bags are pushed as their rows. BSP only.
class MergedClient : public RowClient, public ForwardingAdmin, public PooledClient {
 public:
  // Pushes sums to `pushes` and forwards all other calls to `inner`.
  // REQUIRES: `pushes` and `inner` have the same tables and outlive the client.
  MergedClient(const Clients& inner, MergedPushes& pushes,
               std::unique_ptr<TrainerExchange> exchange, MergeOptions options = {});

  absl::Status CreateTables(const std::vector<TableSpec>& tables, absl::Duration timeout) override;
  rpc::Future<rpc::Done> Pull(uint64_t step, bool create,
                              std::vector<PullSegment> segments) override {
    return inner_.rows->Pull(step, create, std::move(segments));
  }
  // Copies the gradients and checks them like a server.
  rpc::Future<rpc::Done> Push(uint64_t step, uint32_t slice,
                              std::vector<PushSegment> segments) override;
  rpc::Future<rpc::Done> PullPooled(uint64_t step, bool create, const Bags& bags, size_t dim,
                                    float* pooled) override {
    return inner_.pooled->PullPooled(step, create, bags, dim, pooled);
  }
  rpc::Future<rpc::Done> PushPooled(uint64_t step, uint32_t slice, const Bags& bags, size_t dim,
                                    const float* gradients) override {
    return PushToBags(*this, step, slice, bags, dim, gradients);
  }
  rpc::Future<absl::uint128> GradientNorm(uint64_t step) override;
  rpc::Future<rpc::Done> Commit(const CommitArgs& args) override;
  void Abort(absl::Status reason) override;
  void TraceSteps(std::shared_ptr<Tracer> tracer, uint64_t first, uint64_t last) override;
  std::vector<std::string> Report() const override;

 private:
  struct Block;  // rows of one table and push, in a buffer

  // One segment of a push, cut by merging trainer, and the segment's rows that are not finite.
  struct Share {
    const TableSpec* spec;
    std::vector<OwnedIds> owned;  // by rank
    std::vector<uint64_t> wrong_ids;
    std::vector<float> wrong_gradients;
    std::vector<bool> wrong;  // by place in the segment; true: not finite; empty: all are finite
  };

  absl::StatusOr<Share> Cut(const PushSegment& segment) const;
  absl::Status CheckStep(uint64_t step) const;
  // Adds a share's rows to the buffers of the trainers that merge them.
  void Pack(uint32_t slice, const PushSegment& segment, const Share& share);
  // Sends the held pushes to their merging trainers and pushes the rows that this trainer merges.
  // Does so once per step.
  absl::Status Flush(uint64_t step);
  absl::Status ExchangeAndPush(uint64_t step);
  absl::StatusOr<AllToAllBuffers> ExchangeBuffers(uint64_t step, const PushName& own);
  // Reads the blocks of a buffer. Adds the sender's name to `names` if there are blocks. Fails
  // unless the buffer is for `step`.
  absl::Status Unpack(uint64_t step, const char* buffer, size_t bytes, std::vector<Block>* blocks,
                      std::vector<PushName>* names) const;
  // Adds the blocks up and pushes the sums.
  void PushMerged(uint64_t step, const std::vector<PushName>& names, std::vector<Block> blocks);

  const Clients inner_;
  MergedPushes& merged_;
  CallTracer tracer_;
  const std::unique_ptr<TrainerExchange> exchange_;
  const MergeOptions options_;
  const Router router_;                  // maps a row to its merging trainer
  std::map<uint32_t, TableSpec> specs_;  // by table number
  std::vector<std::string> buffers_;     // by rank: the held pushes
  uint64_t held_step_ = 0;               // step of the held pushes; 0: none are held
  uint64_t flushed_step_ = 0;            // the last flushed step
  absl::Status refused_push_;            // the first refusal since flushed_step_
  absl::Status failed_;                  // permanent failure
  uint64_t rows_received_ = 0, rows_pushed_ = 0;
};

}  // namespace tandem::ps
