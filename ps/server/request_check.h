// Checks who may call a parameter server: the first check of every request of
// tandem.EmbeddingService, before anything behind the header is read.
// Thread rule: any thread after Open. Before Open every request is refused with Unavailable.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ps/wire/message_limits.h"
#include "rpc/first_field.h"
#include "rpc/payload.h"

namespace google::protobuf {
class Message;
}

namespace tandem::ps {

// The roles that may make a call.
enum class Senders {
  ANY,
  TRAINERS,  // for calls that change rows or count trainers
};

class RequestCheck {
 public:
  // Call once.
  // REQUIRES: job_epoch != 0.
  void Open(uint64_t job_epoch, uint32_t generation, uint32_t shard_map_version) {
    generation_ = generation;
    shard_map_version_ = shard_map_version;
    job_epoch_ = job_epoch;
  }
  uint32_t shard_map_version() const { return shard_map_version_; }

  // Reads and checks the header alone. InvalidArgument if the header is not the message's first
  // field. Unavailable before Open. FailedPrecondition if the protocol version, job epoch,
  // generation or shard map differs. PermissionDenied if the sender's role may not make the call.
  absl::Status CheckHeader(const rpc::Payload& message, Senders senders) const;

  // Returns the request of a message without large fields. Checks the header before the rest is
  // parsed.
  template <class Request>
  absl::StatusOr<Request> Decode(rpc::Payload& message, Senders senders,
                                 size_t max_fields = kMaxFields) const {
    Request request;
    absl::Status status = CheckHeader(message, senders);
    // Checks and uses the same copy: the sender may still write to the message's memory.
    if (status.ok()) status = ParseFields(std::string(message.Flatten()), max_fields, &request);
    if (!status.ok()) return status;
    return request;
  }

  // Parses a message, or the rest of a message without its large fields. InvalidArgument if there
  // are more than `max_fields` fields, or the bytes cannot be parsed.
  static absl::Status ParseFields(std::string_view fields, size_t max_fields,
                                  google::protobuf::Message* request);

 private:
  std::atomic<uint32_t> generation_{0}, shard_map_version_{0};
  std::atomic<uint64_t> job_epoch_{0};  // 0: not open; set after the others
};

}  // namespace tandem::ps
