// A client that adds up gradients over the trainers of a host before they are pushed, so that servers get one row for each id (as BytePS
// and Persia merge in a machine; here exactly). A trainer holds a step's pushes until it asks for the norm or commits. Then every id goes
// to one of the host's trainers, by its virtual shard. That trainer adds the rows up in f32 in the order in which servers do, (slice,
// trainer, sequence, position), and pushes the sums. Servers then have one addend for a row. With all trainers on one host and f32 on the
// wire, every bit is that without merging, except a row's frequency, which counts pushed gradients.
//
// All that a trainer pushes in a step has one name (trainer, incarnation, sequence). A merged push names all that it covers
// (PushRequest.covered), so a push that comes twice, from whomever, counts once. A trainer that dies before its part is pushed never
// commits: the step fails for all, and nothing of it is applied.
// A gradient that is not finite goes to its server by itself, which refuses or counts it under its trainer's name. With CLIP, only the
// numbers that are not finite do. Where finite numbers add up to an infinity, the merging trainer is named.
// Bags are pushed as their rows. BSP only.
// Thread rule: as RowClient; GradientNorm or else Commit blocks until the trainers have exchanged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ps/caching/forwarding_admin.h"
#include "ps/caching/trainer_exchange.h"
#include "ps/client/call_tracer.h"
#include "ps/client/clients.h"
#include "ps/client/merged_pushes.h"
#include "ps/wire/router.h"

namespace tandem::ps {

struct MergeOptions {
  // About how many bytes of ids and f32 rows are pushed together, over all servers.
  size_t push_bytes = size_t{1} << 20;
};

class MergedClient : public RowClient, public ForwardingAdmin, public PooledClient {
 public:
  // Sums go to `pushes`, everything else to `inner`, of the same tables. Both outlive the client.
  MergedClient(const Clients& inner, MergedPushes& pushes, std::unique_ptr<TrainerExchange> exchange, MergeOptions options = {});

  absl::Status CreateTables(const std::vector<TableSpec>& tables, absl::Duration timeout) override;
  rpc::Future<rpc::Done> Pull(uint64_t step, bool create, std::vector<PullSegment> segments) override {
    return inner_.rows->Pull(step, create, std::move(segments));
  }
  // Copies the gradients, and checks them as a server would.
  rpc::Future<rpc::Done> Push(uint64_t step, uint32_t slice, std::vector<PushSegment> segments) override;
  rpc::Future<rpc::Done> PullPooled(uint64_t step, bool create, const Bags& bags, size_t dim, float* pooled) override {
    return inner_.pooled->PullPooled(step, create, bags, dim, pooled);
  }
  rpc::Future<rpc::Done> PushPooled(uint64_t step, uint32_t slice, const Bags& bags, size_t dim, const float* gradients) override {
    return PushToBags(*this, step, slice, bags, dim, gradients);
  }
  rpc::Future<absl::uint128> GradientNorm(uint64_t step) override;
  rpc::Future<rpc::Done> Commit(const CommitArgs& args) override;
  void Abort(absl::Status reason) override;
  void TraceSteps(std::shared_ptr<Tracer> tracer, uint64_t first, uint64_t last) override;
  std::vector<std::string> Report() const override;

 private:
  struct Block;  // rows of one table and push, in a buffer

  // One segment of a push, cut by who merges it, and its rows that are not finite.
  struct Share {
    const TableSpec* spec;
    std::vector<OwnedIds> owned;  // by rank
    std::vector<uint64_t> wrong_ids;
    std::vector<float> wrong_gradients;
    std::vector<bool> wrong;  // by place in the segment; empty: none
  };

  absl::StatusOr<Share> Cut(const PushSegment& segment) const;
  absl::Status CheckStep(uint64_t step) const;
  // Adds a share's rows to the buffers of the trainers that merge them.
  void Pack(uint32_t slice, const PushSegment& segment, const Share& share);
  // Sends the held pushes to their mergers, once for a step, and pushes what this trainer merges.
  absl::Status Flush(uint64_t step);
  absl::Status ExchangeAndPush(uint64_t step);
  absl::StatusOr<AllToAllBuffers> ExchangeBuffers(uint64_t step, const PushName& own);
  // Reads the blocks of a buffer, which must be for this step. Adds the sender's name to `names` if there are blocks.
  absl::Status Unpack(uint64_t step, const char* buffer, size_t bytes, std::vector<Block>* blocks, std::vector<PushName>* names) const;
  // Adds the blocks up and pushes the sums.
  void PushMerged(uint64_t step, const std::vector<PushName>& names, std::vector<Block> blocks);

  const Clients inner_;
  MergedPushes& merged_;
  CallTracer tracer_;
  const std::unique_ptr<TrainerExchange> exchange_;
  const MergeOptions options_;
  const Router router_;                 // from a row to the trainer that merges it
  std::map<uint32_t, TableSpec> specs_;  // by table number
  std::vector<std::string> buffers_;    // by rank: the held pushes
  uint64_t held_step_ = 0;              // theirs; 0: there are none
  uint64_t flushed_step_ = 0;           // the last one
  absl::Status refused_push_;           // since then
  absl::Status failed_;                 // for good
  uint64_t rows_received_ = 0, rows_pushed_ = 0;
};

}  // namespace tandem::ps
