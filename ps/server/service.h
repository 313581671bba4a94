// tandem.EmbeddingService over the tables of a TableHost. Checks the sender (RequestCheck),
// decodes, checks sizes and checksum, and calls the host. Workers write rows straight into the
// reply's buffer. Pushed gradients stay in the receive buffer until their step is committed. A
// message is not trusted: the header is checked before the rest is read. Sizes are compared and
// bounded before anything is allocated.
// Thread rule: handlers run on any thread and never block. The host must outlive the server's last
// call.
#pragma once

#include <cstdint>
#include <vector>

#include "ps/server/allowed_folders.h"
#include "ps/server/pooled_calls.h"
#include "ps/server/request_check.h"
#include "ps/server/table_host.h"
#include "ps/wire/message_limits.h"
#include "rpc/master/shard_map.h"
#include "rpc/payload.h"
#include "rpc/server.h"

namespace tandem {
enum IdsFormat : int;   // proto/embedding.pb.h
enum WireFormat : int;  // proto/embedding.pb.h
}  // namespace tandem

namespace tandem::ps {

class EmbeddingService {
 public:
  // Answers every call with Unavailable (come again) until Open, because a server must listen
  // before it can join a job.
  explicit EmbeddingService(TableHost& host) : host_(host), pooled_(host, check_) {}
  // Serves all virtual shards, open from the start.
  EmbeddingService(TableHost& host, uint64_t job_epoch, uint32_t generation,
                   uint32_t shard_map_version)
      : EmbeddingService(host) {
    check_.Open(job_epoch, generation, shard_map_version);
  }

  // Serves as parameter server `rank` of `map`. Call once.
  // REQUIRES: job_epoch != 0.
  void Open(uint64_t job_epoch, uint32_t generation, const rpc::ShardMap& map, uint32_t rank) {
    host_.Own(ShardsOwnedBy(map, rank), map.version());
    check_.Open(job_epoch, generation, map.version());
  }

  // Limits checkpoints to these folders.
  // REQUIRES: Register was not called yet.
  void RestrictFolders(const FolderLimits& limits) { folders_ = AllowedFolders(limits); }

  // This object must outlive `server`.
  void Register(rpc::Server& server);

  // The handlers of encoded messages, one message each.
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
  // Returns the bytes of the segments' rows in `format`, and sets row_bytes to the size of a row of
  // each segment. InvalidArgument if `ids_bytes` does not match the segments' counts, as far as can
  // be told without reading ids. InvalidArgument also if ids or rows are too many.
  template <class Segments>
  absl::StatusOr<size_t> CountRowBytes(const Segments& segments, IdsFormat ids_format,
                                       size_t ids_bytes, WireFormat format,
                                       std::vector<size_t>* row_bytes) const;

  TableHost& host_;
  RequestCheck check_;
  AllowedFolders folders_;
  const PooledCalls pooled_;
};

}  // namespace tandem::ps
