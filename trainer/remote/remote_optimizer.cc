#include "trainer/remote/remote_optimizer.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "proto/worker.pb.h"
#include "trainer/remote/array_message.h"
#include "trainer/remote/remote_call.h"

namespace tandem::remote {

namespace {

CreateOptimizerRequest::Kind KindOf(optim::Kind kind) {
  switch (kind) {
    case optim::Kind::SGD:
      return CreateOptimizerRequest::SGD;
    case optim::Kind::ADAGRAD:
      return CreateOptimizerRequest::ADAGRAD;
    case optim::Kind::ADAM:
      return CreateOptimizerRequest::ADAM;
    case optim::Kind::ADAMW:
      return CreateOptimizerRequest::ADAMW;
  }
  return CreateOptimizerRequest::SGD;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RemoteOptimizer>> RemoteOptimizer::Create(
    Host& host, const optim::DenseOptions& options, const std::vector<RemoteParameter>& parameters,
    absl::Time deadline) {
  std::map<std::string, CreateOptimizerRequest> requests;  // by owner
  for (const RemoteParameter& parameter : parameters) {
    CreateOptimizerRequest& request = requests[parameter.module.owner()];
    OptimizerParameter* entry = request.add_parameters();
    entry->set_object(parameter.module.object());
    entry->set_name(parameter.name);
  }
  std::vector<RemoteRef> refs;
  for (auto& [owner, request] : requests) {
    request.set_kind(KindOf(options.kind));
    request.set_beta1(options.beta1);
    request.set_beta2(options.beta2);
    request.set_epsilon(options.epsilon);
    request.set_weight_decay(options.weight_decay);
    ASSIGN_OR_RETURN(RemoteRef ref, RemoteRef::CreateOptimizer(host, owner, request, deadline));
    refs.push_back(std::move(ref));
  }
  return std::unique_ptr<RemoteOptimizer>(new RemoteOptimizer(std::move(refs)));
}

absl::StatusOr<uint64_t> RemoteOptimizer::Step(DistAutogradContext& context, double learning_rate,
                                               double gradient_scale) {
  RETURN_IF_ERROR(context.frame().context().status());
  std::vector<rpc::Future<rpc::Payload>> answers;
  for (const RemoteRef& ref : refs_) {
    StepRequest request;
    context.host().Sign(&request);
    request.set_context(context.id());
    request.set_optimizer(ref.object());
    request.set_learning_rate(learning_rate);
    request.set_gradient_scale(gradient_scale);
    answers.push_back(
        StartCall(context.host(), ref.owner(), "Step", rpc::Payload(request.SerializeAsString()),
                  context.deadline(),
                  absl::StrCat(context.frame().share()->name(), ": step at ", ref.owner())));
  }
  uint64_t updated = 0;
  for (const auto& answer : answers) {
    auto payload = answer.Wait(absl::InfiniteFuture());  // the call has the deadline
    const auto reply = payload.ok() ? Decode<StepReply>(*payload) : payload.status();
    if (!reply.ok())
      context.frame().Fail(reply.status());
    else
      updated += reply->updated();
  }
  RETURN_IF_ERROR(context.frame().context().status());
  return updated;
}

}  // namespace tandem::remote
