// Parameter servers in this process: each is a TableHost behind a real rpc::Server on a free port
// of this machine.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "ps/client/remote_client.h"
#include "ps/server/service.h"
#include "ps/server/table_host.h"
#include "rpc/protocol_version.h"
#include "rpc/server.h"

namespace tandem::ps {

inline constexpr uint64_t kTestJobEpoch = 0x7e57;
inline constexpr uint32_t kTestMapVersion = 1;

// The shards of server `rank` in Router::RoundRobin, by which the clients here route.
inline ShardSet RoundRobinShards(uint32_t rank, uint32_t num_servers) {
  ShardSet shards;
  for (uint32_t shard = 0; shard < rpc::kNumVirtualShards; ++shard)
    shards.set(shard, shard % num_servers == rank);
  return shards;
}

class PsServer {
 public:
  explicit PsServer(int num_workers, uint64_t job_epoch = kTestJobEpoch, uint32_t rank = 0,
                    uint32_t num_servers = 1)
      : host_(num_workers), service_(host_, job_epoch, 1, kTestMapVersion) {
    host_.Own(RoundRobinShards(rank, num_servers), kTestMapVersion);
    Listen("127.0.0.1:0");
  }
  ~PsServer() { Kill(); }

  TableHost& host() { return host_; }
  const std::string& address() const { return address_; }
  // Breaks every connection at once. Calls parked in the host are dropped with their replies.
  void Kill() { server_.reset(); }
  // Serves the same tables again at the same address. With `offers_shared_memory` false, over gRPC
  // alone.
  void Restart(bool offers_shared_memory = true) {
    offers_shared_memory_ = offers_shared_memory;
    Listen(address_);
  }

 private:
  void Listen(const std::string& address) {
    server_ = std::make_unique<rpc::Server>();
    service_.Register(*server_);
    const absl::Status status = server_->Start(address);
    ASSERT_TRUE(status.ok()) << status;
    if (offers_shared_memory_) {
      ASSERT_TRUE(server_->ServeSharedMemory().ok());
    }
    address_ = server_->address();
  }

  TableHost host_;
  EmbeddingService service_;
  bool offers_shared_memory_ = true;
  std::string address_;
  std::unique_ptr<rpc::Server> server_;
};

class PsCluster {
 public:
  PsCluster(int num_servers, int num_workers, uint64_t job_epoch = kTestJobEpoch)
      : job_epoch_(job_epoch) {
    const auto count = static_cast<uint32_t>(num_servers);
    for (uint32_t rank = 0; rank < count; ++rank)
      servers_.push_back(std::make_unique<PsServer>(num_workers, job_epoch, rank, count));
  }
  size_t size() const { return servers_.size(); }
  PsServer& operator[](size_t i) { return *servers_[i]; }

  // `addresses`: where the client finds the servers, if not where they listen.
  std::unique_ptr<RemoteClient> MakeClient(uint32_t trainer, uint32_t num_trainers,
                                           RemoteClientOptions options,
                                           std::vector<std::string> addresses = {}) {
    if (addresses.empty()) {
      for (const auto& server : servers_) addresses.push_back(server->address());
    }
    RequestHeader header;
    header.set_protocol_version(rpc::kProtocolVersion);
    header.set_job_epoch(job_epoch_);
    header.set_generation(1);
    header.set_shard_map_version(kTestMapVersion);
    header.mutable_sender()->set_role(TRAINER);
    header.mutable_sender()->set_rank(trainer);
    header.mutable_sender()->set_incarnation(1);
    return std::make_unique<RemoteClient>(addresses,
                                          Router::RoundRobin(static_cast<int>(addresses.size())),
                                          header, num_trainers, options);
  }

 private:
  const uint64_t job_epoch_;
  std::vector<std::unique_ptr<PsServer>> servers_;
};

}  // namespace tandem::ps
