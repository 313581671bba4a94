#include "trainer/remote/host.h"

#include <algorithm>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/base/random.h"
#include "kernels/base/status_macros.h"
#include "proto/worker.pb.h"
#include "rpc/protocol_version.h"
#include "trainer/remote/array_message.h"
#include "trainer/remote/host_state.h"

namespace tandem::remote {

namespace {

constexpr char kService[] = "/tandem.WorkerService/";
// For calls that only end or drop something.
constexpr absl::Duration kFarewell = absl::Seconds(5);

// Draws a number of this host alone, unique in this process and among processes with the same
// clock.
uint64_t Draw(const Host* host) {
  const auto here = reinterpret_cast<uintptr_t>(host) ^ static_cast<uint64_t>(getpid()) << 40;
  return Fmix64(Fmix64(static_cast<uint64_t>(absl::ToUnixNanos(absl::Now()))) ^ here) | 1;
}

}  // namespace

Host::State::State(const HostOptions& options, Host* host)
    // Call numbers begin with the time, so that a restarted process reuses no earlier number.
    : options(options),
      host(host),
      process(Draw(host)),
      rank(options.rank),
      job_epoch(options.job_epoch),
      next_call(static_cast<uint64_t>(absl::ToUnixMicros(absl::Now())) & ((uint64_t{1} << 48) - 1)),
      server(options.credentials) {}

std::shared_ptr<rpc::Channel> Host::State::Link(const std::string& peer_address) {
  absl::MutexLock lock(&mutex);
  Peer& peer = peers[peer_address];
  if (peer.channel == nullptr) {
    peer.channel = std::make_shared<rpc::Channel>(peer_address, options.credentials);
    peer.last_heard = absl::Now();
    if (closed) peer.channel->Abort(absl::CancelledError("this process's host was closed"));
  }
  ++peer.calls;
  return peer.channel;
}

void Host::State::Unlink(const std::string& peer_address, bool heard) {
  absl::MutexLock lock(&mutex);
  const auto peer = peers.find(peer_address);
  if (peer == peers.end()) return;  // the host is closed
  --peer->second.calls;
  if (!heard) return;
  peer->second.last_heard = absl::Now();
  peer->second.silent = false;
}

Host::Host(std::unique_ptr<State> state) : state_(std::move(state)) {}

absl::StatusOr<std::unique_ptr<Host>> Host::Start(const HostOptions& options) {
  TANDEM_CHECK(options.pool != nullptr && options.rank < 0x8000);
  auto host = std::unique_ptr<Host>(new Host(nullptr));
  host->state_ = std::make_unique<State>(options, host.get());
  State& state = *host->state_;
  state.Register();
  RETURN_IF_ERROR(state.server.Start(options.listen));
  state.address = state.server.address();
  state.watcher = std::thread([&state] { state.Watch(); });
  return host;
}

Host::~Host() {
  const absl::Status closed =
      absl::CancelledError(absl::StrCat("the host at ", state_->address, " was closed"));
  std::vector<uint64_t> ids;
  std::vector<State::EarlyCall> early;
  {
    absl::MutexLock lock(&state_->mutex);
    state_->closing = true;
    early.swap(state_->early);
    for (const auto& [id, share] : state_->contexts) ids.push_back(id);
  }
  for (const State::EarlyCall& call : early) call.reply(closed);
  for (const uint64_t id : ids) EndContext(id, closed);
  std::vector<std::shared_ptr<rpc::Channel>> channels;
  {
    absl::MutexLock lock(&state_->mutex);
    auto told = [this]()
                    ABSL_SHARED_LOCKS_REQUIRED(state_->mutex) { return state_->farewells == 0; };
    state_->mutex.AwaitWithTimeout(absl::Condition(&told), absl::Seconds(1));
    state_->closed = true;
    for (const auto& [address, peer] : state_->peers) {
      if (peer.channel != nullptr) channels.push_back(peer.channel);
    }
  }
  if (state_->watcher.joinable()) state_->watcher.join();
  for (const auto& channel : channels)
    channel->Abort(absl::CancelledError("this process's host was closed"));
  state_->server.Shutdown(0);
  state_->tasks.Stop();
  channels.clear();
  // Channels first: their end waits for callbacks, which use the state.
  std::map<std::string, State::Peer> peers;
  {
    absl::MutexLock lock(&state_->mutex);
    peers.swap(state_->peers);
  }
}

void Host::Open(uint32_t rank, uint64_t job_epoch) {
  TANDEM_CHECK(job_epoch != 0 && rank < 0x8000);
  state_->rank = rank;
  state_->server.SetReady();
  std::vector<State::EarlyCall> early;
  {
    absl::MutexLock lock(&state_->mutex);
    state_->job_epoch = job_epoch;
    early.swap(state_->early);
  }
  for (auto& [method, request, reply] : early)
    state_->Serve(method, std::move(request), std::move(reply));
}

const std::string& Host::address() const { return state_->address; }
ThreadPool& Host::pool() const { return *state_->options.pool; }

size_t Host::LiveContexts() const {
  absl::MutexLock lock(&state_->mutex);
  return state_->contexts.size();
}

size_t Host::NumObjects() const {
  absl::MutexLock lock(&state_->mutex);
  return state_->objects.size();
}

Traffic Host::traffic() const {
  return {state_->calls, state_->gradients, state_->gradient_arrays, state_->gradient_bytes};
}

uint64_t Host::NextCall() {
  return state_->number() << 48 | (++state_->next_call & ((uint64_t{1} << 48) - 1));
}

void Host::FillCaller(Caller* caller) const {
  RequestHeader* header = caller->mutable_header();
  header->set_protocol_version(rpc::kProtocolVersion);
  header->set_job_epoch(state_->job_epoch);
  header->set_generation(1);
  header->mutable_sender()->set_role(state_->options.is_worker ? WORKER : TRAINER);
  header->mutable_sender()->set_rank(state_->rank);
  header->mutable_sender()->set_incarnation(1);
  caller->set_address(state_->address);
  caller->set_process(state_->process);
}

std::shared_ptr<ContextShare> Host::BeginContext(absl::Time deadline) {
  auto share = std::make_shared<ContextShare>(NextCall(), deadline);
  absl::MutexLock lock(&state_->mutex);
  state_->contexts[share->id()] = share;
  return share;
}

void Host::EndContext(uint64_t id, const absl::Status& status, const std::string& told_by) {
  const absl::Status reason =
      status.ok() ? absl::CancelledError(absl::StrCat(ContextShare::NameOf(id), " is over"))
                  : status;
  std::shared_ptr<ContextShare> share;
  {
    absl::MutexLock lock(&state_->mutex);
    // Recorded even for a context that is unknown here: a late call must not begin it anew.
    if (!state_->over.emplace(id, reason).second) return;
    state_->over_order.push_back(id);
    if (state_->over_order.size() > kMaxOver) {
      state_->over.erase(state_->over_order.front());
      state_->over_order.pop_front();
    }
    const auto found = state_->contexts.find(id);
    if (found == state_->contexts.end()) return;
    share = std::move(found->second);
    state_->contexts.erase(found);
    for (auto& [process, user] : state_->users) user.contexts.erase(id);
  }
  // The peers are complete only after End.
  share->End(reason);
  const std::vector<std::string> peers = share->peers();
  for (const std::string& peer : peers) {
    if (peer == told_by) continue;
    EndRequest request;
    Sign(&request);
    request.set_context(id);
    request.set_code(static_cast<int>(status.code()));
    request.set_message(std::string(status.message()));
    {
      absl::MutexLock lock(&state_->mutex);
      ++state_->farewells;
    }
    Call(peer, "End", rpc::Payload(request.SerializeAsString()), absl::Now() + kFarewell, "end",
         [this](const auto&) {
           absl::MutexLock lock(&state_->mutex);
           --state_->farewells;
         });
  }
}

void Host::Call(const std::string& address, const char* method, rpc::Payload request,
                absl::Time deadline, std::string what, Answer answer) {
  const std::shared_ptr<rpc::Channel> channel = state_->Link(address);
  const rpc::CallOptions options{std::max(deadline - absl::Now(), absl::Milliseconds(1)),
                                 /*idempotent=*/false};
  channel->Call(absl::StrCat(kService, method), std::move(request), options)
      .OnReady([this, address, what = std::move(what),
                answer = std::move(answer)](const absl::StatusOr<rpc::Payload>& reply) {
        state_->Unlink(address, reply.ok());
        if (!reply.ok()) {
          return answer(absl::Status(reply.status().code(),
                                     absl::StrCat(what, ": ", reply.status().message())));
        }
        answer(*reply);
      });
}

void Host::SendForward(const std::string& address, rpc::Payload request, absl::Time deadline,
                       std::string what, Answer answer) {
  ++state_->calls;
  Call(address, "Forward", std::move(request), deadline, std::move(what), std::move(answer));
}

void Host::SendGradients(const ContextShare& share, const std::string& address,
                         const GradientBundle& bundle, Done done) {
  const std::string what =
      absl::StrCat(share.name(), ": gradients of ", bundle.of_inputs ? "inputs" : "outputs",
                   " of call ", bundle.call & ((uint64_t{1} << 48) - 1), " to ", address);
  if (absl::Status status = CheckArrays(bundle.gradients); !status.ok()) return done(status);
  GradientRequest request;
  Sign(&request);
  request.set_context(share.id());
  request.set_call(bundle.call);
  request.set_of_inputs(bundle.of_inputs);
  request.set_fast(bundle.fast);
  uint64_t num_bytes = 0, num_arrays = 0;
  for (size_t i = 0; i < bundle.places.size(); ++i) {
    DescribeArray(bundle.gradients[i], request.mutable_gradients())->set_place(bundle.places[i]);
    num_arrays += bundle.gradients[i].defined();
    if (bundle.gradients[i].defined()) num_bytes += bundle.gradients[i].num_bytes();
  }
  ++state_->gradients;
  state_->gradient_arrays += num_arrays;
  state_->gradient_bytes += num_bytes;
  Call(address, "Gradient", MessageOf(request.SerializeAsString(), bundle.gradients),
       share.deadline(), what, [done = std::move(done)](const absl::StatusOr<rpc::Payload>& reply) {
         done(reply.status());
       });
}

uint64_t Host::BeginHold() {
  absl::MutexLock lock(&state_->mutex);
  state_->holds_in_flight.insert(state_->next_sequence);
  return state_->next_sequence++;
}

void Host::EndHold(uint64_t sequence, const Reference* reference) {
  absl::MutexLock lock(&state_->mutex);
  state_->holds_in_flight.erase(sequence);
  if (reference != nullptr) ++state_->references[*reference];
}

void Host::Release(const Reference& reference) {
  DropRequest request;
  {
    absl::MutexLock lock(&state_->mutex);
    const auto found = state_->references.find(reference);
    TANDEM_CHECK(found != state_->references.end())
        << "object " << reference.object << " is released more often than held";
    if (--found->second > 0) return;
    state_->references.erase(found);
    // A hold of the object in flight may arrive first, and must outlive the drop. A heartbeat or
    // the end of the lease later ends what the drop spares.
    request.set_sequence(state_->SettledSequence());
    ++state_->farewells;
  }
  Sign(&request);
  request.set_object(reference.object);
  Call(reference.owner, "Drop", rpc::Payload(request.SerializeAsString()), absl::Now() + kFarewell,
       "drop", [this](const auto&) {
         absl::MutexLock lock(&state_->mutex);
         --state_->farewells;
       });
}

uint64_t Host::State::SettledSequence() {
  return holds_in_flight.empty() ? next_sequence++ : *holds_in_flight.begin();
}

void Host::State::Watch() {
  const absl::Duration turn = std::min(options.lease / 6, absl::Milliseconds(200));
  while (true) {
    {
      absl::MutexLock lock(&mutex);
      auto ends = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex) { return closing; };
      if (mutex.AwaitWithTimeout(absl::Condition(&ends), turn)) return;
    }
    const absl::Time now = absl::Now();
    SendBeats(now);
    ForgetSilent(now);
  }
}

void Host::State::SendBeats(absl::Time now) {
  struct Target {
    std::vector<uint64_t> objects;
    bool due = false;
  };
  std::map<std::string, Target> targets;
  uint64_t sequence;
  {
    absl::MutexLock lock(&mutex);
    sequence = SettledSequence();
    for (const auto& [reference, count] : references)
      targets[reference.owner].objects.push_back(reference.object);
    for (const auto& [id, share] : contexts) {
      for (const std::string& peer : share->peers()) targets[peer];
    }
    for (auto& [target, what] : targets) {
      Peer& peer = peers[target];
      // A process that was no peer lately had no reason to speak. A heartbeat in flight was a
      // reason.
      if (!peer.beating && now - peer.last_beat > options.lease) peer.last_heard = now;
      what.due = !peer.beating && now - peer.last_beat >= options.lease / 3;
      if (!what.due) continue;
      peer.beating = true;
      peer.last_beat = now;
    }
  }
  for (const auto& [target, what] : targets) {
    if (!what.due) continue;
    BeatRequest request;
    host->Sign(&request);
    request.mutable_objects()->Add(what.objects.begin(), what.objects.end());
    request.set_sequence(sequence);
    host->Call(target, "Beat", rpc::Payload(request.SerializeAsString()), now + options.lease,
               "beat", [this, target = target](absl::StatusOr<rpc::Payload> reply) {
                 absl::Status lost;
                 const auto answer = reply.ok() ? Decode<BeatReply>(*reply) : reply.status();
                 {
                   absl::MutexLock lock(&mutex);
                   Peer& peer = peers[target];
                   peer.beating = false;
                   if (answer.ok() && peer.process != 0 && peer.process != answer->process()) {
                     lost = absl::UnavailableError(
                         absl::StrCat("the process at ", target, " was started anew"));
                   } else if (!answer.ok() && absl::Now() - peer.last_heard > options.lease) {
                     lost = absl::UnavailableError(absl::StrCat(
                         "the process at ", target, " has said nothing for ",
                         absl::FormatDuration(options.lease), ": ", answer.status().message()));
                   }
                   if (answer.ok()) peer.process = answer->process();
                 }
                 if (!lost.ok()) LosePeer(target, lost);
               });
  }
}

void Host::State::ForgetSilent(absl::Time now) {
  std::vector<std::pair<uint64_t, absl::Status>> ended;
  OwnedObjects::Freed freed;
  {
    absl::MutexLock lock(&mutex);
    for (auto user = users.begin(); user != users.end();) {
      if (now < user->second.expires) {
        ++user;
        continue;
      }
      for (const uint64_t id : user->second.contexts) {
        ended.emplace_back(id, absl::UnavailableError(absl::StrCat(
                                   "the process at ", user->second.address, " has said nothing to ",
                                   address, " for ", absl::FormatDuration(options.lease))));
      }
      const auto peer = peers.find(user->second.address);
      if (peer != peers.end()) peer->second.silent = true;
      for (OwnedObject& object : objects.Forget(user->first)) freed.push_back(std::move(object));
      user = users.erase(user);
    }
    // Waiting calls have the same deadline and explain more, so their errors go first.
    for (const auto& [id, share] : contexts) {
      if (now < share->deadline() + absl::Milliseconds(200)) continue;
      ended.emplace_back(id, absl::DeadlineExceededError(
                                 absl::StrCat(share->name(), " has not ended by its deadline")));
    }
  }
  for (const auto& [id, status] : ended) host->EndContext(id, status);
  TakeUnused().clear();  // destroyed outside the lock
}

std::vector<std::shared_ptr<rpc::Channel>> Host::State::TakeUnused() {
  // The addresses of dead processes do not come back. A silent process may still serve and have no
  // reason to speak.
  std::vector<std::shared_ptr<rpc::Channel>> unused;
  absl::MutexLock lock(&mutex);
  const auto needs = [&](const std::string& peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    for (const auto& [reference, count] : references) {
      if (reference.owner == peer) return true;
    }
    for (const auto& [id, share] : contexts) {
      const std::vector<std::string> known = share->peers();
      if (std::find(known.begin(), known.end(), peer) != known.end()) return true;
    }
    return false;
  };
  for (auto peer = peers.begin(); peer != peers.end();) {
    const Peer& state = peer->second;
    if (!state.silent || state.beating || state.calls > 0 || needs(peer->first)) {
      ++peer;
      continue;
    }
    unused.push_back(std::move(peer->second.channel));
    peer = peers.erase(peer);
  }
  return unused;
}

void Host::State::LosePeer(const std::string& peer, const absl::Status& reason) {
  std::vector<uint64_t> lost;
  {
    absl::MutexLock lock(&mutex);
    for (const auto& [id, share] : contexts) {
      const std::vector<std::string> known = share->peers();
      if (std::find(known.begin(), known.end(), peer) != known.end()) lost.push_back(id);
    }
  }
  for (const uint64_t id : lost) host->EndContext(id, reason);
}

}  // namespace tandem::remote
