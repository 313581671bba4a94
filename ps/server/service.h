// The tables of a TableHost as tandem.EmbeddingService: checks who sends a message (RequestCheck), decodes the rest, checks sizes and
// checksum, and hands all to the host. Rows are written by the workers straight into the reply's buffer; pushed gradients stay in the
// receive buffer until their step is committed. Nothing that a message says is trusted: the header is checked before anything else is read,
// and sizes are checked against each other, and bounded, before anything is allocated.
// Thread rule: handlers run on any thread and never block. The host must outlive the server's last call.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/embedding.pb.h"
#include "ps/server/allowed_folders.h"
#include "ps/wire/message_limits.h"
#include "ps/server/pooled_calls.h"
#include "ps/server/request_check.h"
#include "ps/server/table_host.h"
#include "rpc/master/shard_map.h"
#include "rpc/payload.h"
#include "rpc/server.h"

namespace tandem::ps {

class EmbeddingService {
 public:
  // Answers every call with Unavailable (come again) until Open: a server must listen before it can join a job.
  explicit EmbeddingService(TableHost& host) : host_(host), pooled_(host, check_) {}
  // Of a server that owns all virtual shards, open from the start.
  EmbeddingService(TableHost& host, uint64_t job_epoch, uint32_t generation, uint32_t shard_map_version) : EmbeddingService(host) {
    check_.Open(job_epoch, generation, shard_map_version);
  }

  // Serves parameter server `rank` of `map`. REQUIRES: job_epoch != 0. Once.
  void Open(uint64_t job_epoch, uint32_t generation, const rpc::ShardMap& map, uint32_t rank) {
    host_.Own(ShardsOwnedBy(map, rank), map.version());
    check_.Open(job_epoch, generation, map.version());
  }

  // From now on checkpoints are written and read below these folders alone. REQUIRES: not registered yet.
  void RestrictFolders(const FolderLimits& limits) { folders_ = AllowedFolders(limits); }

  // The service object must outlive `server`.
  void Register(rpc::Server& server);

  // The byte handlers, one message each.
  void CreateTables(rpc::Payload request, rpc::Reply reply);
  void Assign(rpc::Payload request, rpc::Reply reply);
  void Read(rpc::Payload request, rpc::Reply reply);
  void Pull(rpc::Payload request, rpc::Reply reply);
  void Push(rpc::Payload request, rpc::Reply reply);
  void PullPooled(rpc::Payload request, rpc::Reply reply);
  void PushPooled(rpc::Payload request, rpc::Reply reply);
  void GradientNorm(rpc::Payload request, rpc::Reply reply);
  void Commit(rpc::Payload request, rpc::Reply reply);
  void Hash(rpc::Payload request, rpc::Reply reply);
  void Statistics(rpc::Payload request, rpc::Reply reply);
  void Save(rpc::Payload request, rpc::Reply reply);
  void Load(rpc::Payload request, rpc::Reply reply);
  void TakeTrace(rpc::Payload request, rpc::Reply reply);

 private:
  absl::Status StartAssign(rpc::Payload& payload, const rpc::Reply& reply);
  absl::Status StartRead(rpc::Payload& payload, const rpc::Reply& reply);
  absl::Status StartPull(rpc::Payload& payload, const rpc::Reply& reply);
  absl::Status StartPush(rpc::Payload& payload, const rpc::Reply& reply);
  // Bytes of the segments' rows as `format` has them, and of a row of each. InvalidArgument if `ids_bytes` of ids are not what the
  // segments count, as far as can be told without reading them, or ids or rows are too many.
  template <class Segments>
  absl::StatusOr<size_t> CountRowBytes(const Segments& segments, IdsFormat ids_format, size_t ids_bytes, WireFormat format,
                                       std::vector<size_t>* row_bytes) const;

  TableHost& host_;
  RequestCheck check_;
  AllowedFolders folders_;
  const PooledCalls pooled_;
};

}  // namespace tandem::ps
