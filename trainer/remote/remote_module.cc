#include "trainer/remote/remote_module.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/base/status_macros.h"
#include "proto/worker.pb.h"
#include "trainer/remote/array_message.h"
#include "trainer/remote/context_share.h"
#include "trainer/remote/remote_call.h"

namespace tandem::remote {

namespace {

Places PlacesOf(const std::string& bits) {
  Places places;
  for (uint32_t place = 0; place < 8 * bits.size(); ++place) {
    if (bits[place / 8] >> place % 8 & 1) places.insert(place);
  }
  return places;
}

void SetTimeout(absl::Time deadline, ContextInfo* info) {
  info->set_timeout_ms(static_cast<uint64_t>(
      std::max<int64_t>(1, absl::ToInt64Milliseconds(deadline - absl::Now()))));
}

}  // namespace

absl::StatusOr<RemoteModule> RemoteModule::Create(Host& host, const std::string& owner,
                                                  const std::string& module,
                                                  const std::string& arguments,
                                                  absl::Time deadline) {
  ASSIGN_OR_RETURN(RemoteRef ref, RemoteRef::Create(host, owner, module, arguments, deadline));
  return RemoteModule(std::move(ref));
}

std::vector<RemoteParameter> RemoteModule::Parameters() const {
  std::vector<RemoteParameter> parameters;
  for (const std::string& name : ref_.parameters()) parameters.push_back({ref_, name});
  return parameters;
}

PendingOutputs RemoteModule::ForwardAsync(Frame& frame, const std::vector<Variable>& inputs) const {
  const std::shared_ptr<ContextShare>& share = frame.share();
  const bool training = share != nullptr && frame.context().training();
  const uint64_t call = frame.host().NextCall();
  const absl::Time deadline = share != nullptr ? share->deadline() : frame.context().deadline();
  PendingOutputs pending;
  pending.frame_ = frame.shared_from_this();
  pending.call_ = call;
  pending.what_ =
      absl::StrCat(training ? share->name() + ": " : "", "call ", call & ((uint64_t{1} << 48) - 1),
                   " of ", ref_.module(), " at ", ref_.owner());
  const AnswerPromise promise;
  pending.answer_ = promise.future();

  ForwardRequest request;
  frame.host().Sign(&request);
  request.mutable_context()->set_seed(frame.context().seed());
  request.mutable_context()->set_step(frame.context().step());
  SetTimeout(deadline, request.mutable_context());
  request.set_call(call);
  for (const uint64_t index : frame.NextOrder()) request.add_order(index);
  request.set_object(ref_.object());
  std::vector<Tensor> arrays;
  for (const Variable& input : inputs) {
    arrays.push_back(input.value());
    DescribeArray(input.value(), request.mutable_inputs())
        ->set_needs_gradient(training && input.requires_gradient());
  }
  absl::Status status = frame.context().status();
  if (status.ok()) status = CheckArrays(arrays);
  if (status.ok() && training) {
    request.mutable_context()->set_context(share->id());
    status = share->AddPeer(ref_.owner());
    if (status.ok()) {
      status = share->BeginWait(call, pending.frame_,
                                [promise](const absl::Status& ended) { promise.Set(ended); });
    }
    if (status.ok()) frame.BeginCall(call, ref_.owner(), inputs);
  }
  if (!status.ok()) {
    promise.Set(status);
    return pending;
  }
  frame.host().SendForward(
      ref_.owner(), MessageOf(request.SerializeAsString(), arrays), deadline, pending.what_,
      [promise](absl::StatusOr<rpc::Payload> reply) { promise.Set(std::move(reply)); });
  return pending;
}

absl::StatusOr<std::vector<Variable>> PendingOutputs::Await() {
  // The call has the deadline, and the end of the context also ends the call.
  auto outputs = Read(answer_.Wait(absl::InfiniteFuture()));
  if (const auto& share = frame_->share(); share != nullptr) share->EndWait(call_);
  if (!outputs.ok()) {
    frame_->DropCall(call_);
    frame_->Fail(outputs.status());
  }
  return outputs;
}

absl::StatusOr<std::vector<Variable>> PendingOutputs::Read(absl::StatusOr<rpc::Payload> payload) {
  RETURN_IF_ERROR(payload.status());
  std::string_view data;
  ASSIGN_OR_RETURN(const auto reply, Decode<ForwardReply>(*payload, &data));
  ASSIGN_OR_RETURN(const std::vector<Tensor> outputs, ReadArrays(reply.outputs(), data));
  std::vector<bool> needs_gradient;
  std::vector<Places> reaches;
  for (int i = 0; i < reply.outputs_size(); ++i) {
    if (!outputs[static_cast<size_t>(i)].defined() || i >= reply.reaches_size()) {
      return absl::InternalError(absl::StrCat(what_, ": malformed reply"));
    }
    needs_gradient.push_back(frame_->share() != nullptr && reply.outputs(i).needs_gradient());
    reaches.push_back(PlacesOf(reply.reaches(i)));
  }
  if (frame_->share() == nullptr) {
    std::vector<Variable> constants;
    for (const Tensor& output : outputs) constants.push_back(Variable::Constant(output));
    return constants;
  }
  return frame_->EndCall(call_, outputs, needs_gradient, std::move(reaches), what_);
}

absl::StatusOr<std::vector<Tensor>> RemoteModule::Evaluate(const std::vector<Tensor>& inputs,
                                                           absl::Time deadline) const {
  ForwardRequest request;
  ref_.host().Sign(&request);
  SetTimeout(deadline, request.mutable_context());
  request.set_object(ref_.object());
  for (const Tensor& input : inputs) DescribeArray(input, request.mutable_inputs());
  RETURN_IF_ERROR(CheckArrays(inputs));
  ASSIGN_OR_RETURN(rpc::Payload payload,
                   StartCall(ref_.host(), ref_.owner(), "Forward",
                             MessageOf(request.SerializeAsString(), inputs), deadline,
                             absl::StrCat("evaluate ", ref_.module(), " at ", ref_.owner()))
                       .Wait(absl::InfiniteFuture()));
  std::string_view data;
  ASSIGN_OR_RETURN(const auto reply, Decode<ForwardReply>(payload, &data));
  return ReadArrays(reply.outputs(), data);
}

}  // namespace tandem::remote
