// The service of a host for other processes: tandem.WorkerService. It trusts nothing in a message.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/base/status_macros.h"
#include "proto/worker.pb.h"
#include "rpc/protocol_version.h"
#include "trainer/remote/array_message.h"
#include "trainer/remote/host_state.h"

namespace tandem::remote {

namespace {

template <class Message>
rpc::Payload Encode(const Message& message) {
  return rpc::Payload(message.SerializeAsString());
}

std::vector<bool> NeedsGradient(const ArrayInfos& infos) {
  std::vector<bool> needs;
  for (const ArrayInfo& info : infos) needs.push_back(info.needs_gradient());
  return needs;
}

std::string BitsOf(const Places& places) {
  std::string bits;
  for (const uint32_t place : places) {
    if (bits.size() <= place / 8) bits.resize(place / 8 + 1);
    bits[place / 8] = static_cast<char>(bits[place / 8] | 1 << place % 8);
  }
  return bits;
}

optim::DenseOptions OptionsOf(const CreateOptimizerRequest& request) {
  optim::DenseOptions options{.beta1 = request.beta1(),
                              .beta2 = request.beta2(),
                              .epsilon = request.epsilon(),
                              .weight_decay = request.weight_decay()};
  switch (request.kind()) {
    case CreateOptimizerRequest::ADAGRAD:
      options.kind = optim::Kind::ADAGRAD;
      break;
    case CreateOptimizerRequest::ADAM:
      options.kind = optim::Kind::ADAM;
      break;
    case CreateOptimizerRequest::ADAMW:
      options.kind = optim::Kind::ADAMW;
      break;
    default:
      options.kind = optim::Kind::SGD;
  }
  return options;
}

}  // namespace

void Host::State::Register() {
  const auto handle = [&](const char* method, Method member, bool of_the_job = true) {
    const auto serve = [this, member, of_the_job](rpc::Payload request, rpc::Reply reply) {
      if (of_the_job && job_epoch == 0 && WaitsForOpen(member, request, reply)) return;
      if (of_the_job)
        Serve(member, std::move(request), std::move(reply));
      else
        (this->*member)(std::move(request), std::move(reply));
    };
    server.Handle("tandem.WorkerService", method, rpc::MethodKind::UNARY, serve);
  };
  handle("Create", &State::Create);
  handle("Hold", &State::Hold);
  handle("Drop", &State::Drop);
  handle("Beat", &State::Beat);
  handle("Fetch", &State::Fetch);
  handle("Forward", &State::Forward);
  handle("Gradient", &State::Gradient);
  handle("CreateOptimizer", &State::CreateOptimizer);
  handle("Step", &State::Step);
  handle("End", &State::End);
  // An observer need not be a member.
  handle("WorkerStatistics", &State::WorkerStatistics, /*of_the_job=*/false);
}

void Host::State::Serve(Method method, rpc::Payload request, rpc::Reply reply) {
  Caller caller;
  absl::Status status = rpc::ReadFirstField(request, &caller);
  if (status.ok()) status = AdmitCaller(caller);
  if (!status.ok()) return reply(status);
  (this->*method)(std::move(request), std::move(reply));
}

bool Host::State::WaitsForOpen(Method method, rpc::Payload& request, rpc::Reply& reply) {
  {
    absl::MutexLock lock(&mutex);
    if (job_epoch != 0) return false;
    if (!closing && early.size() < kMaxTasks && request.size() <= kMaxEarlyBytes - early_bytes) {
      early_bytes += request.size();
      early.push_back({method, std::move(request), std::move(reply)});
      return true;
    }
  }
  reply(absl::UnavailableError("this process has not joined its job yet"));
  return true;
}

void Host::State::Later(rpc::Reply reply, std::function<absl::StatusOr<rpc::Payload>()> task) {
  const auto answer = std::make_shared<rpc::Reply>(std::move(reply));
  if (tasks.Run([answer, task = std::move(task)] { (*answer)(task()); })) return;
  (*answer)(
      absl::ResourceExhaustedError(absl::StrCat("more than ", kMaxTasks, " calls at a time")));
}

absl::Status Host::State::AdmitCaller(const Caller& caller) {
  const RequestHeader& header = caller.header();
  RETURN_IF_ERROR(rpc::CheckProtocolVersion(header.protocol_version(), "this process"));
  const uint64_t own_epoch = job_epoch;
  if (header.job_epoch() != own_epoch) {
    return absl::FailedPreconditionError(absl::StrCat(
        "job epoch ", header.job_epoch(), ", this process serves ", own_epoch, ": another job"));
  }
  if (caller.process() == 0 || caller.address().empty())
    return absl::InvalidArgumentError("the caller does not say who it is");
  absl::MutexLock lock(&mutex);
  Renew(caller);
  return absl::OkStatus();
}

Host::State::User& Host::State::Renew(const Caller& caller) {
  User& user = users[caller.process()];
  user.address = caller.address();
  user.expires = absl::Now() + options.lease;
  return user;
}

uint64_t Host::State::Own(OwnedObject object, const Caller& caller, uint64_t sequence) {
  absl::MutexLock lock(&mutex);
  Renew(caller);
  return objects.Add(std::move(object), caller.process(), sequence);
}

absl::StatusOr<std::shared_ptr<ContextShare>> Host::State::Enter(const ContextInfo& info,
                                                                 const Caller& caller) {
  if (info.context() == 0) return std::shared_ptr<ContextShare>();
  std::shared_ptr<ContextShare> share;
  {
    absl::MutexLock lock(&mutex);
    const auto ended = over.find(info.context());
    if (ended != over.end()) return ended->second;
    if (closing) return absl::CancelledError(absl::StrCat("the host at ", address, " was closed"));
    std::shared_ptr<ContextShare>& entry = contexts[info.context()];
    if (entry == nullptr) {
      if (contexts.size() > kMaxContexts) {
        contexts.erase(info.context());
        return absl::ResourceExhaustedError(
            absl::StrCat("more than ", kMaxContexts, " contexts are alive"));
      }
      const auto timeout = static_cast<int64_t>(std::min<uint64_t>(info.timeout_ms(), 86'400'000));
      entry =
          std::make_shared<ContextShare>(info.context(), absl::Now() + absl::Milliseconds(timeout));
    }
    Renew(caller).contexts.insert(info.context());
    share = entry;
  }
  RETURN_IF_ERROR(share->AddPeer(caller.address()));
  return share;
}

absl::StatusOr<OwnedObject> Host::State::Find(uint64_t object, const char* what) const {
  absl::MutexLock lock(&mutex);
  const OwnedObject* found = objects.Find(object);
  if (found == nullptr)
    return absl::NotFoundError(absl::StrCat("object ", object, " is not here, or not any more"));
  const bool is_module = found->module != nullptr;
  if (is_module != (std::string_view(what) == "module")) {
    return absl::InvalidArgumentError(absl::StrCat("object ", object, " is no ", what));
  }
  return *found;
}

void Host::State::Create(rpc::Payload payload, rpc::Reply reply) {
  Later(std::move(reply),
        [this, payload = std::move(payload)]() mutable -> absl::StatusOr<rpc::Payload> {
          ASSIGN_OR_RETURN(const auto request, DecodeRequest<CreateRequest>(payload));
          if (options.modules == nullptr)
            return absl::UnimplementedError("this process hosts no modules");
          ASSIGN_OR_RETURN(auto made, options.modules->Make(request.module(), request.arguments()));
          CreateReply message;
          for (const auto& parameter : made.parameters->all())
            message.add_parameters(parameter->name);
          OwnedObject object{std::make_shared<HostedModule>(request.module(), std::move(made)),
                             nullptr};
          message.set_object(Own(std::move(object), request.caller(), request.sequence()));
          return Encode(message);
        });
}

void Host::State::Hold(rpc::Payload payload, rpc::Reply reply) {
  const auto held = [&]() -> absl::StatusOr<rpc::Payload> {
    ASSIGN_OR_RETURN(const auto request, DecodeRequest<HoldRequest>(payload));
    ASSIGN_OR_RETURN(const OwnedObject object, Find(request.object(), "module"));
    HoldReply message;
    message.set_module(object.module->name());
    for (size_t i = 0; i < object.module->num_parameters(); ++i)
      message.add_parameters(object.module->NameOf(i));
    absl::MutexLock lock(&mutex);
    RETURN_IF_ERROR(objects.Hold(request.object(), request.caller().process(), request.sequence()));
    return Encode(message);
  };
  reply(held());
}

void Host::State::Drop(rpc::Payload payload, rpc::Reply reply) {
  OwnedObjects::Freed freed;
  const auto dropped = [&]() -> absl::StatusOr<rpc::Payload> {
    ASSIGN_OR_RETURN(const auto request, DecodeRequest<DropRequest>(payload));
    absl::MutexLock lock(&mutex);
    freed = objects.Drop(request.object(), request.caller().process(), request.sequence());
    return Encode(DropReply());
  };
  reply(dropped());
}

void Host::State::Beat(rpc::Payload payload, rpc::Reply reply) {
  OwnedObjects::Freed freed;
  const auto heard = [&]() -> absl::StatusOr<rpc::Payload> {
    ASSIGN_OR_RETURN(const auto request, DecodeRequest<BeatRequest>(payload));
    absl::MutexLock lock(&mutex);
    freed = objects.Keep(request.caller().process(),
                         {request.objects().begin(), request.objects().end()}, request.sequence());
    BeatReply message;
    message.set_process(process);
    return Encode(message);
  };
  reply(heard());
}

void Host::State::Fetch(rpc::Payload payload, rpc::Reply reply) {
  Later(std::move(reply),
        [this, payload = std::move(payload)]() mutable -> absl::StatusOr<rpc::Payload> {
          ASSIGN_OR_RETURN(const auto request, DecodeRequest<FetchRequest>(payload));
          ASSIGN_OR_RETURN(const OwnedObject object, Find(request.object(), "module"));
          const std::vector<Tensor> values = object.module->Fetch();
          RETURN_IF_ERROR(CheckArrays(values));
          FetchReply message;
          for (size_t i = 0; i < values.size(); ++i) {
            DescribeArray(values[i], message.mutable_parameters())
                ->set_name(object.module->NameOf(i));
          }
          return MessageOf(message.SerializeAsString(), values);
        });
}

void Host::State::Forward(rpc::Payload payload, rpc::Reply reply) {
  Later(std::move(reply),
        [this, payload = std::move(payload)]() mutable { return RunForward(payload); });
}

absl::StatusOr<rpc::Payload> Host::State::RunForward(rpc::Payload& payload) {
  std::string_view data;
  ASSIGN_OR_RETURN(const auto request, DecodeRequest<ForwardRequest>(payload, &data));
  ASSIGN_OR_RETURN(const std::vector<Tensor> inputs, ReadArrays(request.inputs(), data));
  for (const Tensor& input : inputs) {
    if (!input.defined()) return absl::InvalidArgumentError("a call's input is missing");
  }
  ASSIGN_OR_RETURN(const OwnedObject object, Find(request.object(), "module"));
  ASSIGN_OR_RETURN(const auto share, Enter(request.context(), request.caller()));
  Context::Options step;
  step.seed = request.context().seed();
  step.step = request.context().step();
  step.training = share != nullptr;
  step.deadline = share != nullptr
                      ? share->deadline()
                      : absl::Now() + absl::Milliseconds(static_cast<int64_t>(std::min<uint64_t>(
                                          request.context().timeout_ms(), 86'400'000)));
  std::vector<uint64_t> order(request.order().begin(), request.order().end());
  const auto frame = std::make_shared<Frame>(host, share, request.call(), std::move(order),
                                             request.caller().address(), step);
  if (share != nullptr) RETURN_IF_ERROR(share->Add(frame));
  HostedModule::Leaves leaves = object.module->Snapshot();
  const std::vector<Variable> parameters = leaves.parameters;
  frame->KeepLeaves(object.module, std::move(leaves));
  const auto outputs = object.module->module().Forward(
      *frame, parameters, frame->TakeInputs(inputs, NeedsGradient(request.inputs())));
  absl::Status status = outputs.status();
  if (status.ok()) status = frame->status();
  std::vector<Tensor> values;
  for (size_t i = 0; status.ok() && i < outputs->size(); ++i) {
    const Variable& output = (*outputs)[i];
    // If a pass may follow, the frame holds the parameters unchanged until it ends. Otherwise the
    // values are cloned, because the reply may leave later and must not share memory with
    // parameters.
    const bool held = share != nullptr && output.requires_gradient();
    values.push_back(held ? output.value() : output.value().Clone());
  }
  if (status.ok()) status = CheckArrays(values);
  if (!status.ok())
    return absl::Status(status.code(), absl::StrCat(object.module->name(), ": ", status.message()));
  ForwardReply message;
  const std::vector<Places> reaches = frame->KeepOutputs(*outputs);
  for (size_t i = 0; i < values.size(); ++i) {
    DescribeArray(values[i], message.mutable_outputs())
        ->set_needs_gradient((*outputs)[i].requires_gradient());
    message.add_reaches(BitsOf(reaches[i]));
  }
  return MessageOf(message.SerializeAsString(), values);
}

void Host::State::Gradient(rpc::Payload payload, rpc::Reply reply) {
  std::string_view data;
  const auto request = DecodeRequest<GradientRequest>(payload, &data);
  if (!request.ok()) return reply(request.status());
  auto gradients = ReadArrays(request->gradients(), data);
  if (!gradients.ok()) return reply(gradients.status());
  GradientBundle bundle{
      request->call(), request->of_inputs(), request->fast(), {}, *std::move(gradients)};
  for (const ArrayInfo& info : request->gradients()) bundle.places.push_back(info.place());
  std::shared_ptr<ContextShare> share;
  {
    absl::MutexLock lock(&mutex);
    const auto alive = contexts.find(request->context());
    const auto ended = over.find(request->context());
    if (alive != contexts.end())
      share = alive->second;
    else if (ended != over.end())
      return reply(ended->second);
  }
  const auto frame = share == nullptr   ? nullptr
                     : bundle.of_inputs ? share->FindCaller(bundle.call)
                                        : share->FindCalled(bundle.call);
  if (frame == nullptr)
    return reply(absl::NotFoundError("the call that these gradients belong to is not known here"));
  if (bundle.of_inputs) {
    const absl::Status status = frame->ArriveInputs(std::move(bundle));
    return status.ok() ? reply(Encode(GradientReply())) : reply(status);
  }
  Later(std::move(reply),
        [frame, bundle = std::move(bundle)]() mutable -> absl::StatusOr<rpc::Payload> {
          RETURN_IF_ERROR(frame->RunCalled(std::move(bundle)));
          return Encode(GradientReply());
        });
}

void Host::State::CreateOptimizer(rpc::Payload payload, rpc::Reply reply) {
  Later(std::move(reply),
        [this, payload = std::move(payload)]() mutable -> absl::StatusOr<rpc::Payload> {
          ASSIGN_OR_RETURN(const auto request, DecodeRequest<CreateOptimizerRequest>(payload));
          auto optimizer = std::make_shared<HostedOptimizer>(OptionsOf(request));
          CreateReply message;
          for (const OptimizerParameter& parameter : request.parameters()) {
            ASSIGN_OR_RETURN(const OwnedObject object, Find(parameter.object(), "module"));
            const int place = object.module->PlaceOf(parameter.name());
            if (place < 0) {
              return absl::InvalidArgumentError(absl::StrCat(
                  object.module->name(), " has no parameter '", parameter.name(), "'"));
            }
            optimizer->Add(object.module, static_cast<size_t>(place));
            message.add_parameters(parameter.name());
          }
          message.set_object(
              Own({nullptr, std::move(optimizer)}, request.caller(), request.sequence()));
          return Encode(message);
        });
}

void Host::State::Step(rpc::Payload payload, rpc::Reply reply) {
  Later(std::move(reply),
        [this, payload = std::move(payload)]() mutable -> absl::StatusOr<rpc::Payload> {
          ASSIGN_OR_RETURN(const auto request, DecodeRequest<StepRequest>(payload));
          ASSIGN_OR_RETURN(const OwnedObject object, Find(request.optimizer(), "optimizer"));
          std::shared_ptr<ContextShare> share;
          {
            absl::MutexLock lock(&mutex);
            const auto ended = over.find(request.context());
            if (ended != over.end()) return ended->second;
            const auto alive = contexts.find(request.context());
            if (alive != contexts.end()) share = alive->second;
          }
          // A context that never came here has no gradients here. The optimizer still counts the
          // step.
          Stream stream(options.pool);
          StepReply message;
          if (share != nullptr) {
            message.set_updated(share->Step(*object.optimizer, request.learning_rate(),
                                            request.gradient_scale(), stream));
          } else {
            ModuleGradients none;
            object.optimizer->Step(none, request.learning_rate(), request.gradient_scale(), stream);
          }
          return Encode(message);
        });
}

void Host::State::End(rpc::Payload payload, rpc::Reply reply) {
  const auto request = DecodeRequest<EndRequest>(payload);
  if (!request.ok()) return reply(request.status());
  reply(Encode(EndReply()));
  host->EndContext(request->context(),
                   absl::Status(static_cast<absl::StatusCode>(request->code()), request->message()),
                   request->caller().address());
}

void Host::State::WorkerStatistics(rpc::Payload payload, rpc::Reply reply) {
  const auto request = DecodeRequest<WorkerStatisticsRequest>(payload);
  if (!request.ok()) return reply(request.status());
  WorkerStatisticsReply message;
  absl::MutexLock lock(&mutex);
  message.set_contexts(contexts.size());
  message.set_objects(objects.size());
  message.set_references(objects.num_references());
  reply(Encode(message));
}

}  // namespace tandem::remote
