#include "trainer/job/job_options.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/base/random.h"
#include "proto/embedding.pb.h"
#include "proto/job.pb.h"
#include "trainer/job/parameter_placement.h"

namespace tandem::job {

absl::StatusOr<ComputePlace> DeviceOf(const Job& job, int place, int num_trainers) {
  if (job.device() == CPU) return ComputePlace();
  const CudaInfo cuda = QueryCuda();
  if (cuda.num_devices == 0 && job.device() == CUDA)
    return absl::InvalidArgumentError(absl::StrCat("device CUDA: ", cuda.why_none));
  const bool shared = cuda.num_devices < num_trainers;
  if (cuda.num_devices == 0 || (shared && job.device() != CUDA)) return ComputePlace();
  return ComputePlace{{DeviceKind::CUDA, place % cuda.num_devices}, shared};
}

absl::StatusOr<comm::DeviceGroup> MakeDeviceGroup(const Job& job, const ComputePlace& place,
                                                  comm::ProcessGroup* host, rpc::Store* store) {
  const absl::Duration timeout = absl::Seconds(job.runtime().timeout_seconds());
  const Parallel::Transport transport = job.parallel().transport();
  return comm::MakeDeviceGroup({.host = host,
                                .store = store,
                                .name = "dp/device",
                                .device = place.device,
                                .shares_device = place.shared,
                                .transport = transport == Parallel::NCCL   ? comm::Transport::NCCL
                                             : transport == Parallel::HOST ? comm::Transport::HOST
                                                                           : comm::Transport::ANY,
                                .timeout = timeout},
                               absl::Now() + timeout);
}

optim::DenseOptions DenseOptionsOf(const Job& job) {
  const Optimizer& optimizer = job.optimizer();
  optim::DenseOptions options;
  options.kind = optimizer.kind() == SGD       ? optim::Kind::SGD
                 : optimizer.kind() == ADAGRAD ? optim::Kind::ADAGRAD
                 : optimizer.kind() == ADAMW   ? optim::Kind::ADAMW
                                               : optim::Kind::ADAM;
  options.beta1 = optimizer.beta1();
  options.beta2 = optimizer.beta2();
  options.epsilon = optimizer.epsilon();
  options.weight_decay = optimizer.weight_decay();
  options.decay_all = optimizer.decay_all();
  return options;
}

namespace {

optim::Schedule ScheduleOf(const Job& job, double learning_rate, int64_t total_steps) {
  const Optimizer& optimizer = job.optimizer();
  optim::Schedule schedule;
  schedule.kind = optimizer.schedule() == LINEAR   ? optim::ScheduleKind::LINEAR
                  : optimizer.schedule() == COSINE ? optim::ScheduleKind::COSINE
                                                   : optim::ScheduleKind::CONSTANT;
  schedule.learning_rate = learning_rate;
  schedule.min_learning_rate = optimizer.min_learning_rate();
  schedule.warmup_steps = optimizer.warmup_steps();
  schedule.total_steps = optimizer.schedule_steps() > 0 ? optimizer.schedule_steps() : total_steps;
  return schedule;
}

SparseOptimizer SparseKind(OptimizerKind kind) {
  switch (kind) {
    case SGD:
      return SPARSE_SGD;
    case ADAGRAD:
      return SPARSE_ADAGRAD;
    case ADAMW:
      return SPARSE_ADAMW;
    case ROWWISE_ADAGRAD:
      return SPARSE_ROWWISE_ADAGRAD;
    case MOMENTUM:
      return SPARSE_MOMENTUM;
    case NESTEROV:
      return SPARSE_NESTEROV;
    case ADADELTA:
      return SPARSE_ADADELTA;
    case RMSPROP:
      return SPARSE_RMSPROP;
    case AMSGRAD:
      return SPARSE_AMSGRAD;
    case FTRL:
      return SPARSE_FTRL;
    case GROUP_FTRL:
      return SPARSE_GROUP_FTRL;
    case DC_SGD:
      return SPARSE_DC_SGD;
    default:
      return SPARSE_ADAM;
  }
}

TableSpec::Mode ModeOf(Table::Mode mode) {
  switch (mode) {
    case Table::CATCH_UP:
      return TableSpec::CATCH_UP;
    case Table::DENSE_EQUIVALENT:
      return TableSpec::DENSE_EQUIVALENT;
    default:
      return TableSpec::LAZY;
  }
}

TableSpec::NonFinite NonFiniteOf(Table::NonFinite policy) {
  switch (policy) {
    case Table::SKIP:
      return TableSpec::SKIP;
    case Table::CLIP:
      return TableSpec::CLIP;
    default:
      return TableSpec::REJECT;
  }
}

// Sets how a table's rows are updated.
void SetUpdates(const Optimizer& optimizer, const Table& table, TableSpec* spec) {
  spec->set_optimizer(SparseKind(table.optimizer()));
  spec->set_mode(ModeOf(table.mode()));
  spec->set_non_finite(NonFiniteOf(table.non_finite()));
  spec->set_max_row_norm(static_cast<float>(table.max_row_norm()));
  spec->set_beta1(optimizer.beta1());
  spec->set_beta2(optimizer.beta2());
  spec->set_epsilon(table.epsilon() > 0 ? table.epsilon() : optimizer.epsilon());
  spec->set_weight_decay(table.weight_decay());
  spec->set_momentum(static_cast<float>(table.momentum()));
  spec->set_rho(static_cast<float>(table.rho()));
  spec->set_beta(static_cast<float>(table.beta()));
  spec->set_l1(static_cast<float>(table.l1()));
  spec->set_l2(static_cast<float>(table.l2()));
  spec->set_group_l1(static_cast<float>(table.group_l1()));
  spec->set_delay_compensation(static_cast<float>(table.delay_compensation()));
  spec->set_initial_accumulator(static_cast<float>(table.initial_accumulator()));
}

RowStorage StorageOf(ParameterServer::Storage storage) {
  switch (storage) {
    case ParameterServer::BF16:
      return STORED_BF16;
    case ParameterServer::INT8:
      return STORED_INT8;
    default:
      return STORED_F32;
  }
}

}  // namespace

sparse::StepOptimizer::Options DistOptionsOf(const Job& job, int64_t total_steps) {
  sparse::StepOptimizer::Options options;
  options.dense = ScheduleOf(job, job.optimizer().learning_rate(), total_steps);
  for (int i = 0; job.placement() == Job::PS && i < job.tables_size(); ++i) {
    options.tables.push_back({static_cast<uint32_t>(i + 1),
                              ScheduleOf(job, job.tables(i).learning_rate(), total_steps)});
  }
  for (const TableSpec& spec : DenseTableSpecsOf(job))
    options.tables.push_back({spec.number(), options.dense});
  options.max_grad_norm = job.optimizer().max_grad_norm();
  return options;
}

std::vector<TableSpec> TableSpecsOf(const Job& job) {
  std::vector<TableSpec> specs;
  if (job.placement() != Job::PS) return specs;
  for (const Table& table : job.tables()) {
    TableSpec& spec = specs.emplace_back();
    spec.set_name(table.name());
    spec.set_number(static_cast<uint32_t>(specs.size()));
    spec.set_dim(static_cast<uint32_t>(table.dim()));
    SetUpdates(job.optimizer(), table, &spec);
    spec.set_storage(StorageOf(table.storage()));
    spec.set_init_stddev(static_cast<float>(table.init_stddev()));
    spec.set_seed(Fmix64(job.seed() ^ StableHash(table.name())));
  }
  return specs;
}

std::vector<TableSpec> DenseTableSpecsOf(const Job& job) {
  if (!ServesParameters(job)) return {};
  const double weight_decay = job.optimizer().weight_decay();
  TableSpec spec;
  spec.set_name("parameters");
  spec.set_number(static_cast<uint32_t>(TableSpecsOf(job).size()) + 1);
  spec.set_dim(parallel::kChunk);
  spec.set_optimizer(SparseKind(job.optimizer().kind()));
  spec.set_beta1(job.optimizer().beta1());
  spec.set_beta2(job.optimizer().beta2());
  spec.set_epsilon(job.optimizer().epsilon());
  spec.set_dense(true);
  if (weight_decay == 0) return {spec};
  TableSpec decayed = spec;
  decayed.set_name("decayed parameters");
  decayed.set_number(spec.number() + 1);
  decayed.set_weight_decay(weight_decay);
  return {spec, decayed};
}

ConsistencySpec ConsistencyOf(const Job& job) {
  ConsistencySpec spec;
  switch (job.ps().consistency()) {
    case SSP:
      spec.set_mode(ConsistencySpec::SSP);
      break;
    case ASP:
      spec.set_mode(ConsistencySpec::ASP);
      break;
    case PERMIT:
      spec.set_mode(ConsistencySpec::PERMIT);
      break;
    // The client does the rest.
    case ROW_BOUND:
    case GEO:
      spec.set_mode(ConsistencySpec::ASP);
      break;
    default:
      spec.set_mode(ConsistencySpec::BSP);
  }
  spec.set_staleness(static_cast<uint32_t>(job.ps().staleness()));
  return spec;
}

int64_t TotalSteps(const Job& job, int64_t steps_per_epoch) {
  const int64_t by_epochs = job.train().max_epochs() * steps_per_epoch,
                by_steps = job.train().max_steps();
  if (by_epochs == 0 || by_steps == 0) return std::max(by_epochs, by_steps);
  return std::min(by_epochs, by_steps);
}

}  // namespace tandem::job
