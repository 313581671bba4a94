#include "trainer/comm/nccl_communicator.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/base/cuda_runtime_calls.h"
#include "kernels/base/status_macros.h"

namespace tandem::comm {

namespace {

// For a value that is in the store already, or never.
constexpr absl::Duration kGlance = absl::Milliseconds(20);

ncclConfig_t NonBlocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

std::string KeyOf(const NcclGroupOptions& options, const char* what) { return absl::StrCat(options.name, "/nccl/", what); }

// Rank 0 makes the id and shows it.
absl::StatusOr<ncclUniqueId> AgreeOnId(const NcclLibrary& nccl, const NcclGroupOptions& options, absl::Time deadline) {
  ncclUniqueId id;
  if (options.rank == 0) {
    RETURN_IF_ERROR(nccl.StatusOf("ncclGetUniqueId", nccl.get_unique_id(&id), nullptr));
    RETURN_IF_ERROR(options.store->Set(KeyOf(options, "id"), std::string(id.internal, sizeof(id.internal))));
    return id;
  }
  const auto shown = options.store->Get(KeyOf(options, "id"), deadline);
  if (absl::IsDeadlineExceeded(shown.status())) {
    return absl::DeadlineExceededError(absl::StrCat("rank 0 of ", options.size, " did not open group '", options.name, "'"));
  }
  RETURN_IF_ERROR(shown.status());
  if (shown->size() != sizeof(id.internal)) return absl::InternalError("an id of NCCL of another size: are all binaries alike?");
  std::memcpy(id.internal, shown->data(), sizeof(id.internal));
  return id;
}

absl::Status NotJoined(const NcclGroupOptions& options) {
  std::string missing;
  for (int r = 0; r < options.size; ++r) {
    if (options.store->Get(KeyOf(options, absl::StrCat("came", r).c_str()), absl::Now() + kGlance).ok()) continue;
    absl::StrAppend(&missing, missing.empty() ? "rank " : ", rank ", r);
  }
  if (missing.empty()) missing = "all ranks came, but NCCL's part";
  return absl::DeadlineExceededError(absl::StrCat(missing, " of ", options.size, " did not join group '", options.name,
                                                  "' (NCCL_DEBUG=INFO in the environment makes NCCL tell more)"));
}

absl::Status NeverFails() { return absl::OkStatus(); }
absl::Status Ended() { return absl::CancelledError("the communicator was ended"); }

}  // namespace

absl::StatusOr<std::unique_ptr<NcclCommunicator>> NcclCommunicator::Meet(const NcclGroupOptions& options, absl::Time deadline) {
  ASSIGN_OR_RETURN(const NcclLibrary* const nccl, NcclLibrary::Get());
  ASSIGN_OR_RETURN(const ncclUniqueId id, AgreeOnId(*nccl, options, deadline));
  RETURN_IF_ERROR(options.store->Set(KeyOf(options, absl::StrCat("came", options.rank).c_str()), "1"));
  RETURN_IF_ERROR(cuda::UseDevice(options.device.index));
  ncclConfig_t config = NonBlocking();
  ncclComm_t comm = nullptr;
  const ncclResult_t result = nccl->init_rank(&comm, options.size, id, options.rank, &config);
  RETURN_IF_ERROR(nccl->StatusOf("ncclCommInitRankConfig", result, nullptr));
  std::unique_ptr<NcclCommunicator> made(new NcclCommunicator(nccl, comm, options.device));
  const absl::Status ready = made->AwaitReady(deadline, NeverFails);
  if (absl::IsDeadlineExceeded(ready)) return NotJoined(options);
  RETURN_IF_ERROR(ready);
  return made;
}

absl::Status NcclCommunicator::Submit(bool grouped, absl::FunctionRef<ncclResult_t(const NcclLibrary&, ncclComm_t)> calls) {
  absl::MutexLock lock(&mutex_);
  if (comm_ == nullptr) return Ended();
  RETURN_IF_ERROR(cuda::UseDevice(device_.index));
  if (!grouped) return nccl_->StatusOf("the collective", calls(*nccl_, comm_), comm_);
  RETURN_IF_ERROR(nccl_->StatusOf("ncclGroupStart", nccl_->group_start(), comm_));
  const ncclResult_t called = calls(*nccl_, comm_), ended = nccl_->group_end();
  RETURN_IF_ERROR(nccl_->StatusOf("the collective", called, comm_));
  return nccl_->StatusOf("ncclGroupEnd", ended, comm_);
}

absl::StatusOr<ncclResult_t> NcclCommunicator::State() {
  absl::MutexLock lock(&mutex_);
  if (comm_ == nullptr) return Ended();
  ncclResult_t state = ncclSuccess;
  RETURN_IF_ERROR(nccl_->StatusOf("ncclCommGetAsyncError", nccl_->get_async_error(comm_, &state), comm_));
  RETURN_IF_ERROR(nccl_->StatusOf("NCCL", state, comm_));
  return state;
}

absl::Status NcclCommunicator::AwaitReady(absl::Time deadline, absl::FunctionRef<absl::Status()> failed) {
  for (absl::Duration pause = absl::Microseconds(2);; pause = std::min(2 * pause, absl::Milliseconds(1))) {
    ASSIGN_OR_RETURN(const ncclResult_t state, State());
    if (state == ncclSuccess) return absl::OkStatus();
    RETURN_IF_ERROR(failed());
    if (absl::Now() > deadline) return absl::DeadlineExceededError("NCCL did not get ready in time");
    absl::SleepFor(pause);
  }
}

absl::Status NcclCommunicator::AsyncError() {
  const absl::Status status = State().status();
  return absl::IsCancelled(status) ? absl::OkStatus() : status;  // ended by this rank itself
}

absl::StatusOr<std::unique_ptr<NcclCommunicator>> NcclCommunicator::Split(int color, int key, absl::Time deadline) {
  ncclConfig_t config = NonBlocking();
  ncclComm_t child = nullptr;
  {
    absl::MutexLock lock(&mutex_);
    if (comm_ == nullptr) return Ended();
    RETURN_IF_ERROR(cuda::UseDevice(device_.index));
    RETURN_IF_ERROR(nccl_->StatusOf("ncclCommSplit", nccl_->split(comm_, color, key, &child, &config), comm_));
  }
  RETURN_IF_ERROR(AwaitReady(deadline, NeverFails));
  std::unique_ptr<NcclCommunicator> made(new NcclCommunicator(nccl_, child, device_));
  RETURN_IF_ERROR(made->AwaitReady(deadline, NeverFails));
  return made;
}

absl::StatusOr<int> NcclCommunicator::Rank() {
  absl::MutexLock lock(&mutex_);
  if (comm_ == nullptr) return Ended();
  int rank = 0;
  RETURN_IF_ERROR(nccl_->StatusOf("ncclCommUserRank", nccl_->user_rank(comm_, &rank), comm_));
  return rank;
}

absl::StatusOr<int> NcclCommunicator::Size() {
  absl::MutexLock lock(&mutex_);
  if (comm_ == nullptr) return Ended();
  int size = 0;
  RETURN_IF_ERROR(nccl_->StatusOf("ncclCommCount", nccl_->count(comm_, &size), comm_));
  return size;
}

// Its result would tell of a communicator that is gone.
void NcclCommunicator::Abort() {
  absl::MutexLock lock(&mutex_);
  if (comm_ == nullptr) return;
  cuda::UseDevice(device_.index).IgnoreError();
  nccl_->abort(comm_);
  comm_ = nullptr;
}

void NcclCommunicator::Finish(absl::Time deadline) {
  {
    absl::MutexLock lock(&mutex_);
    if (comm_ == nullptr) return;
    cuda::UseDevice(device_.index).IgnoreError();
    nccl_->finalize(comm_);
  }
  if (!AwaitReady(deadline, NeverFails).ok()) return Abort();
  absl::MutexLock lock(&mutex_);
  nccl_->destroy(comm_);
  comm_ = nullptr;
}

}  // namespace tandem::comm
