#include "ps/server/request_check.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "proto/wire.pb.h"
#include "rpc/protocol_version.h"

namespace tandem::ps {

absl::Status RequestCheck::CheckHeader(const rpc::Payload& message, Senders senders) const {
  RequestHeader header;
  RETURN_IF_ERROR(rpc::ReadFirstField(message, &header));
  RETURN_IF_ERROR(rpc::CheckProtocolVersion(header.protocol_version(), "this server"));
  const uint64_t job_epoch = job_epoch_;
  if (job_epoch == 0) return absl::UnavailableError("this server has not joined its job yet");
  if (header.job_epoch() != job_epoch) {
    return absl::FailedPreconditionError(absl::StrCat("job epoch ", header.job_epoch(),
                                                      ", this server serves ", job_epoch,
                                                      ": another job, or restarted"));
  }
  if (header.generation() != generation_) {
    return absl::FailedPreconditionError(absl::StrCat("generation ", header.generation(),
                                                      ", this server's is ", generation_.load(),
                                                      ": the generation changed, rejoin"));
  }
  if (header.shard_map_version() != shard_map_version_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "not the owner, map version ", shard_map_version_.load(), ": the sender's is version ",
        header.shard_map_version(), "; ask the master for the shard map"));
  }
  if (senders == Senders::TRAINERS && header.sender().role() != TRAINER) {
    return absl::PermissionDeniedError(
        absl::StrCat("only trainers may make this call, not a sender of role ",
                     static_cast<int>(header.sender().role())));
  }
  return absl::OkStatus();
}

absl::Status RequestCheck::ParseFields(std::string_view fields, size_t max_fields,
                                       google::protobuf::Message* request) {
  RETURN_IF_ERROR(rpc::CheckFields(fields, max_fields));
  if (request->ParseFromArray(fields.data(), static_cast<int>(fields.size())))
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("malformed message: not a ", request->GetTypeName()));
}

}  // namespace tandem::ps
