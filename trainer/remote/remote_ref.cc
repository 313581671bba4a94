#include "trainer/remote/remote_ref.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "proto/worker.pb.h"
#include "trainer/remote/array_message.h"
#include "trainer/remote/remote_call.h"

namespace tandem::remote {

template <class Reply, class Request>
absl::StatusOr<std::pair<RemoteRef, Reply>> RemoteRef::Take(Host& host, const std::string& owner,
                                                            const char* method, Request request,
                                                            std::string what, absl::Time deadline) {
  const uint64_t sequence = host.BeginHold();
  host.Sign(&request);
  request.set_sequence(sequence);
  auto payload = StartCall(host, owner, method, rpc::Payload(request.SerializeAsString()), deadline,
                           std::move(what))
                     .Wait(absl::InfiniteFuture());  // the call has the deadline
  const auto reply = payload.ok() ? Decode<Reply>(*payload) : payload.status();
  if (!reply.ok()) {
    host.EndHold(sequence, nullptr);
    return reply.status();
  }
  Reference reference{owner, 0};
  if constexpr (std::is_same_v<Reply, CreateReply>)
    reference.object = reply->object();
  else
    reference.object = request.object();
  host.EndHold(sequence, &reference);
  RemoteRef ref;
  ref.hold_ = std::make_shared<Hold>(host, std::move(reference));
  ref.hold_->parameters.assign(reply->parameters().begin(), reply->parameters().end());
  return std::make_pair(std::move(ref), *reply);
}

absl::StatusOr<RemoteRef> RemoteRef::Create(Host& host, const std::string& owner,
                                            const std::string& module, const std::string& arguments,
                                            absl::Time deadline) {
  CreateRequest request;
  request.set_module(module);
  request.set_arguments(arguments);
  ASSIGN_OR_RETURN(auto taken,
                   Take<CreateReply>(host, owner, "Create", std::move(request),
                                     absl::StrCat("create ", module, " at ", owner), deadline));
  taken.first.hold_->module = module;
  return taken.first;
}

absl::StatusOr<RemoteRef> RemoteRef::CreateOptimizer(Host& host, const std::string& owner,
                                                     const CreateOptimizerRequest& request,
                                                     absl::Time deadline) {
  ASSIGN_OR_RETURN(auto taken,
                   Take<CreateReply>(host, owner, "CreateOptimizer", request,
                                     absl::StrCat("create an optimizer at ", owner), deadline));
  return taken.first;
}

absl::StatusOr<RemoteRef> RemoteRef::Adopt(Host& host, const std::string& owner, uint64_t object,
                                           absl::Time deadline) {
  HoldRequest request;
  request.set_object(object);
  ASSIGN_OR_RETURN(
      auto taken,
      Take<HoldReply>(host, owner, "Hold", std::move(request),
                      absl::StrCat("refer to object ", object, " at ", owner), deadline));
  taken.first.hold_->module = taken.second.module();
  return taken.first;
}

absl::StatusOr<std::vector<Tensor>> RemoteRef::Fetch(absl::Time deadline) const {
  FetchRequest request;
  host().Sign(&request);
  request.set_object(object());
  ASSIGN_OR_RETURN(rpc::Payload payload,
                   StartCall(host(), owner(), "Fetch", rpc::Payload(request.SerializeAsString()),
                             deadline, absl::StrCat("fetch ", module(), " from ", owner()))
                       .Wait(absl::InfiniteFuture()));
  std::string_view data;
  ASSIGN_OR_RETURN(const auto reply, Decode<FetchReply>(payload, &data));
  return ReadArrays(reply.parameters(), data);
}

}  // namespace tandem::remote
