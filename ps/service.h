// The tables of a TableHost as tandem.EmbeddingService: decodes messages, checks protocol version, job epoch, generation,
// sizes and checksum, and hands the rest to the host. Rows are written by the workers straight into the reply's buffer; pushed
// gradients stay in the receive buffer until their step is committed. Nothing that a message says is trusted: sizes are
// checked against each other, and bounded, before anything is allocated.
// Thread rule: handlers run on any thread and never block. The host must outlive the server's last call.
#pragma once

#include <atomic>
#include <cstdint>

#include "proto/embedding.pb.h"
#include "ps/allowed_folders.h"
#include "ps/pooled_calls.h"
#include "ps/table_host.h"
#include "rpc/payload.h"
#include "rpc/server.h"

namespace tandem::ps {

inline constexpr uint32_t kProtocolVersion = 1;
// Of the rows or gradients in one message, and of its ids as u64; a larger job is cut into several messages.
inline constexpr size_t kMaxMessageBytes = size_t{64} << 20;

class EmbeddingService {
 public:
  // Answers every call with Unavailable (come again) until Open: a server must listen before it can join a job.
  explicit EmbeddingService(TableHost& host)
      : host_(host), pooled_(host, [this](const RequestHeader& header) { return CheckHeader(header); }) {}
  EmbeddingService(TableHost& host, uint64_t job_epoch, uint32_t generation, uint32_t shard_map_version) : EmbeddingService(host) {
    Open(job_epoch, generation, shard_map_version);
  }

  // REQUIRES: job_epoch != 0. Once.
  void Open(uint64_t job_epoch, uint32_t generation, uint32_t shard_map_version) {
    generation_ = generation;
    shard_map_version_ = shard_map_version;
    job_epoch_ = job_epoch;
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
  absl::Status CheckHeader(const RequestHeader& header) const;
  // Parses a message without bytes fields and checks its header.
  template <class Request>
  absl::StatusOr<Request> Decode(rpc::Payload& payload) const;
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
  AllowedFolders folders_;
  const PooledCalls pooled_;
  std::atomic<uint32_t> generation_{0}, shard_map_version_{0};
  std::atomic<uint64_t> job_epoch_{0};  // 0: not open; set after the others
};

}  // namespace tandem::ps
