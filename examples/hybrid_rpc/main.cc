// A hybrid model in one file: an embedding bag on a worker, called remotely, and dense layers on
// two trainers under DDP. Each step has one distributed autograd context. A distributed optimizer
// updates the bag. `hybrid_rpc` runs all processes on this machine.
#include <cstdio>
#include <fcntl.h>
#include <random>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/base/status_macros.h"
#include "proto/wire.pb.h"
#include "rpc/credentials.h"
#include "rpc/master/client.h"
#include "rpc/master/service.h"
#include "trainer/autograd/ops/ops.h"
#include "trainer/comm/host/cpu_group.h"
#include "trainer/nn/layers.h"
#include "trainer/parallel/data_parallel/ddp.h"
#include "trainer/remote/layer_modules.h"
#include "trainer/remote/remote_optimizer.h"

using namespace tandem;

namespace {

constexpr int kTrainers = 2, kSteps = 300, kBatch = 16, kIdsOfBag = 6, kIds = 100, kDim = 16,
              kClasses = 8;

absl::Time Soon() { return absl::Now() + absl::Seconds(30); }

// Bags of ids. Most ids of a bag equal its label modulo kClasses.
struct Batch {
  Tensor ids = Tensor::Empty(Shape{kBatch * kIdsOfBag}, DType::I64),
         offsets = Tensor::Empty(Shape{kBatch + 1}, DType::I64);
  Tensor labels = Tensor::Empty(Shape{kBatch}, DType::I64);
};

Batch MakeBatch(uint64_t step, uint32_t rank) {
  Batch batch;
  auto draw = [random = std::mt19937_64(step * kTrainers + rank)](uint64_t below) mutable {
    return static_cast<int64_t>(random() % below);
  };
  for (int b = 0; b <= kBatch; ++b) batch.offsets.data<int64_t>()[b] = b * kIdsOfBag;
  for (int b = 0; b < kBatch; ++b) {
    const int64_t label = batch.labels.data<int64_t>()[b] = draw(kClasses);
    for (int i = 0; i < kIdsOfBag; ++i) {
      batch.ids.data<int64_t>()[b * kIdsOfBag + i] =
          draw(4) > 0 ? label + kClasses * draw(kIds / kClasses) : draw(kIds);
    }
  }
  return batch;
}

// Trainer 0 makes the bag at the worker and tells the others its object number.
absl::StatusOr<remote::RemoteModule> EmbeddingBag(remote::Host& host, rpc::MasterClient& master) {
  const std::string worker = master.assignment().MembersOf(WORKER)[0].address;
  if (master.assignment().rank == 0) {
    ASSIGN_OR_RETURN(auto bag,
                     remote::RemoteModule::Create(
                         host, worker, "EmbeddingBag",
                         absl::StrCat("rows=", kIds, " dim=", kDim, " pooling=mean"), Soon()));
    RETURN_IF_ERROR(master.store().Set("bag", absl::StrCat(bag.ref().object())));
    return bag;
  }
  ASSIGN_OR_RETURN(const std::string told, master.store().Get("bag", Soon()));
  uint64_t object = 0;
  if (!absl::SimpleAtoi(told, &object))
    return absl::InternalError("the first trainer tells no object");
  ASSIGN_OR_RETURN(auto ref, remote::RemoteRef::Adopt(host, worker, object, Soon()));
  return remote::RemoteModule(std::move(ref));
}

absl::Status Train(rpc::MasterClient& master) {
  const rpc::Assignment& job = master.assignment();
  ThreadPool pool(1);
  Stream stream(&pool);
  ASSIGN_OR_RETURN(const auto host, remote::Host::Start({.rank = job.rank,
                                                         .job_epoch = job.job_epoch,
                                                         .pool = &pool,
                                                         .credentials = master.credentials()}));
  ASSIGN_OR_RETURN(const remote::RemoteModule bag, EmbeddingBag(*host, master));
  ASSIGN_OR_RETURN(const auto sparse,
                   remote::RemoteOptimizer::Create(*host, {.kind = optim::Kind::ADAGRAD},
                                                   bag.Parameters(), Soon()));

  ParameterSet parameters(/*seed=*/1, DType::F32);
  const nn::Linear layer(parameters, "fc", kDim, kClasses, {.init = nn::Init::UNIFORM_FAN_IN});
  optim::DenseOptimizer dense({.kind = optim::Kind::ADAGRAD}, &parameters);
  ASSIGN_OR_RETURN(const auto group, comm::CpuGroup::Create({.store = &master.store(),
                                                             .token = job.job_token,
                                                             .name = "dp",
                                                             .rank = static_cast<int>(job.rank),
                                                             .size = kTrainers},
                                                            Soon()));
  ASSIGN_OR_RETURN(const auto ddp, parallel::Ddp::Create(&parameters, group.get(), &stream, {}));

  double first = 0, sum = 0;
  for (uint64_t step = 1; step <= kSteps; ++step) {
    const Batch batch = MakeBatch(step, job.rank);
    Context context({.stream = &stream, .step = step, .deadline = Soon()});
    remote::DistAutogradContext autograd(*host, context);
    ddp->BeginStep(1);
    ddp->BeginPass(context, 0);
    ASSIGN_OR_RETURN(const auto pooled,
                     bag.Forward(autograd.frame(), {Variable::Constant(batch.ids),
                                                    Variable::Constant(batch.offsets)}));
    const Variable loss =
        ops::CrossEntropySum(context, layer.Forward(context, pooled[0]), batch.labels);
    autograd.Backward(loss);
    ddp->Finish(context);
    RETURN_IF_ERROR(context.status());
    dense.Update(step, 0.1, 1.0 / (kTrainers * kBatch), stream);
    RETURN_IF_ERROR(sparse->Step(autograd, 0.1, 1.0 / (kTrainers * kBatch)).status());
    sum += loss.value().At(0) / kBatch;
    if (step % 50 != 0) continue;
    if (job.rank == 0) std::printf("step %3d  loss %.3f\n", static_cast<int>(step), sum / 50);
    if (first == 0) first = sum;
    if (step == kSteps && sum > first / 2) return absl::InternalError("the loss has not halved");
    sum = 0;
  }
  return absl::OkStatus();
}

absl::Status RunRole(Role role, const std::string& master_address) {
  ThreadPool pool(1);
  remote::ModuleRegistry modules;
  remote::AddLayers(modules);
  ASSIGN_OR_RETURN(const rpc::Secret secret, rpc::Secret::Read("-"));
  const rpc::Credentials credentials(secret);
  std::unique_ptr<remote::Host> worker;
  rpc::MemberSelf self;
  self.role = role;
  self.host = "localhost";
  self.pid = getpid();
  if (role == WORKER) {
    ASSIGN_OR_RETURN(
        worker,
        remote::Host::Start(
            {.is_worker = true, .pool = &pool, .modules = &modules, .credentials = credentials}));
    self.address = worker->address();
  }
  ASSIGN_OR_RETURN(const auto master,
                   rpc::MasterClient::Connect(master_address, self, [](absl::Status) {},
                                              {.credentials = credentials}));
  if (worker != nullptr) worker->Open(master->assignment().rank, master->assignment().job_epoch);
  const absl::Status status = role == WORKER ? master->WaitForCompletion() : Train(*master);
  master->Leave(status).IgnoreError();
  return status;
}

// Returns a pipe with the secret, for a child's standard input. So no command line and no
// environment shows the job's secret.
absl::StatusOr<int> PipeWith(const rpc::Secret& secret) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return absl::UnavailableError("no pipe");
  RETURN_IF_ERROR(secret.Write(ends[1]));
  close(ends[1]);
  return ends[0];
}

// Runs the master in this process, and the other roles as processes of their own.
absl::Status Launch() {
  ASSIGN_OR_RETURN(const rpc::Secret secret, rpc::Secret::Draw());
  rpc::MembershipOptions members;
  members.num_trainers = kTrainers;
  members.num_workers = 1;
  rpc::MasterService master(members);
  rpc::Server server((rpc::Credentials(secret)));
  master.RegisterHandlers(server);
  RETURN_IF_ERROR(server.Start("127.0.0.1:0"));
  const std::string address = server.address();
  int num_children = 0;
  for (const char* role : {"worker", "trainer", "trainer"}) {
    ASSIGN_OR_RETURN(const int secret_pipe, PipeWith(secret));
    const pid_t child = fork();
    if (child == 0) {
      dup2(secret_pipe, STDIN_FILENO);
      execl("/proc/self/exe", "hybrid_rpc", role, address.c_str(), nullptr);
      _exit(127);
    }
    close(secret_pipe);
    num_children += child > 0;
  }
  const absl::Status status = master.WaitForEnd();
  while (num_children-- > 0) wait(nullptr);
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string role = argc == 3 ? argv[1] : "";
  const absl::Status status =
      role.empty() ? Launch() : RunRole(role == "worker" ? WORKER : TRAINER, argv[2]);
  if (!status.ok())
    std::fprintf(stderr, "%s: %s\n", role.empty() ? "hybrid_rpc" : role.c_str(),
                 status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
