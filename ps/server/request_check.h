// Who may call a parameter server: the first look at every request of tandem.EmbeddingService, before anything behind its header is read.
// Thread rule: any thread, once Open was called; before, every request is told to come again.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/embedding.pb.h"
#include "ps/wire/message_limits.h"
#include "rpc/first_field.h"
#include "rpc/payload.h"

namespace tandem::ps {

inline constexpr uint32_t kProtocolVersion = 1;

// Roles that may make a call.
enum class Senders {
  ANY,
  TRAINERS,  // what changes rows, or counts trainers
};

class RequestCheck {
 public:
  // REQUIRES: job_epoch != 0. Once.
  void Open(uint64_t job_epoch, uint32_t generation, uint32_t shard_map_version) {
    generation_ = generation;
    shard_map_version_ = shard_map_version;
    job_epoch_ = job_epoch;
  }
  uint32_t shard_map_version() const { return shard_map_version_; }

  // Reads the header alone. InvalidArgument if it is not the message's first field, Unavailable before Open; FailedPrecondition if the protocol
  // version, job epoch, generation or shard map is another one; PermissionDenied if the sender's role may not make the call.
  absl::Status CheckHeader(const rpc::Payload& message, Senders senders) const;

  // The request in a message without large fields, its header checked before the rest is parsed.
  template <class Request>
  absl::StatusOr<Request> Decode(rpc::Payload& message, Senders senders, size_t max_fields = kMaxFields) const {
    Request request;
    absl::Status status = CheckHeader(message, senders);
    // What is checked is what is used: the message may lie in memory that its sender still writes.
    if (status.ok()) status = ParseFields(std::string(message.Flatten()), max_fields, &request);
    if (!status.ok()) return status;
    return request;
  }

  // Parses a message, or what stands in it beside its large fields. InvalidArgument if it has more fields than `max_fields`, or cannot be read.
  static absl::Status ParseFields(std::string_view fields, size_t max_fields, google::protobuf::Message* request);

 private:
  std::atomic<uint32_t> generation_{0}, shard_map_version_{0};
  std::atomic<uint64_t> job_epoch_{0};  // 0: not open; set after the others
};

}  // namespace tandem::ps
