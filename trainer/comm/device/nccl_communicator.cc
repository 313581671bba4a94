#include "trainer/comm/device/nccl_communicator.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/memory/cuda_runtime_calls.h"
#include "trainer/comm/device_queue.h"

namespace tandem::comm {

namespace {

// For a value that is already in the store, or never will be.
constexpr absl::Duration kGlance = absl::Milliseconds(20);
constexpr absl::Duration kAskStore = absl::Milliseconds(250);
constexpr absl::Duration kEnding = absl::Seconds(3);  // for NCCL to release a communicator
constexpr char kError[] = "error: ";                  // instead of an id

ncclConfig_t NonBlocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

std::string KeyOf(const NcclGroupOptions& options, const char* what) {
  return absl::StrCat(options.name, "/nccl/", what);
}

// Rank 0 makes the id and publishes it in the store.
absl::StatusOr<ncclUniqueId> AgreeOnId(const NcclLibrary& nccl, const NcclGroupOptions& options,
                                       absl::Time deadline) {
  ncclUniqueId id;
  if (options.rank == 0) {
    const absl::Status made = nccl.StatusOf("ncclGetUniqueId", nccl.get_unique_id(&id), nullptr);
    if (!made.ok()) {
      options.store->Set(KeyOf(options, "id"), absl::StrCat(kError, std::string(made.message())))
          .IgnoreError();
      return made;
    }
    RETURN_IF_ERROR(
        options.store->Set(KeyOf(options, "id"), std::string(id.internal, sizeof(id.internal))));
    return id;
  }
  const auto shown = options.store->Get(KeyOf(options, "id"), deadline);
  if (absl::IsDeadlineExceeded(shown.status())) {
    return absl::DeadlineExceededError(
        absl::StrCat("rank 0 of ", options.size, " did not open group '", options.name, "'"));
  }
  RETURN_IF_ERROR(shown.status());
  if (absl::StartsWith(*shown, kError))
    return absl::UnavailableError(absl::StrCat("rank 0: ", shown->substr(sizeof(kError) - 1)));
  if (shown->size() != sizeof(id.internal))
    return absl::InternalError("an id of NCCL of another size: are all binaries alike?");
  std::memcpy(id.internal, shown->data(), sizeof(id.internal));
  return id;
}

absl::Status NotJoined(const NcclGroupOptions& options) {
  std::string missing;
  for (int r = 0; r < options.size; ++r) {
    if (options.store->Get(KeyOf(options, absl::StrCat("came", r).c_str()), absl::Now() + kGlance)
            .ok())
      continue;
    absl::StrAppend(&missing, missing.empty() ? "rank " : ", rank ", r);
  }
  if (missing.empty()) missing = "all ranks came, but NCCL's part";
  return absl::DeadlineExceededError(
      absl::StrCat(missing, " of ", options.size, " did not join group '", options.name,
                   "' (NCCL_DEBUG=INFO in the environment makes NCCL tell more)"));
}

absl::Status Ended() { return absl::CancelledError("the communicator was ended"); }

// Calls end(comm), which is ncclCommAbort or ncclCommDestroy, on another thread. If it is late, the
// thread is left behind.
bool End(ncclResult_t (*end)(ncclComm_t), ncclComm_t comm, Device device) {
  const auto done = std::make_shared<absl::Notification>();
  std::thread([=] {
    cuda::UseDevice(device.index).IgnoreError();
    end(comm);  // the result is of no use: the communicator is gone
    done->Notify();
  }).detach();
  return done->WaitForNotificationWithTimeout(kEnding);
}

}  // namespace

absl::StatusOr<std::unique_ptr<NcclCommunicator>> NcclCommunicator::Connect(
    const NcclGroupOptions& options, absl::Time deadline) {
  ASSIGN_OR_RETURN(const NcclLibrary* const nccl, NcclLibrary::Get());
  ASSIGN_OR_RETURN(const ncclUniqueId id, AgreeOnId(*nccl, options, deadline));
  RETURN_IF_ERROR(
      options.store->Set(KeyOf(options, absl::StrCat("came", options.rank).c_str()), "1"));
  RETURN_IF_ERROR(cuda::UseDevice(options.device.index));
  ncclConfig_t config = NonBlocking();
  ncclComm_t comm = nullptr;
  const ncclResult_t result = nccl->init_rank(&comm, options.size, id, options.rank, &config);
  // Also after some errors there is a communicator to end.
  std::unique_ptr<NcclCommunicator> made(new NcclCommunicator(nccl, comm, options.device));
  RETURN_IF_ERROR(nccl->StatusOf("ncclCommInitRankConfig", result, comm));
  absl::Time asked = absl::Now();
  const auto job_failed = [&]() -> absl::Status {  // the job's store reports it
    if (absl::Now() - asked < kAskStore) return absl::OkStatus();
    asked = absl::Now();
    return options.store->Add(KeyOf(options, "alive"), 0).status();
  };
  const absl::Status ready = made->AwaitReady(deadline, job_failed);
  if (absl::IsDeadlineExceeded(ready)) return NotJoined(options);
  RETURN_IF_ERROR(ready);
  return made;
}

absl::Status NcclCommunicator::Submit(
    bool grouped, absl::FunctionRef<ncclResult_t(const NcclLibrary&, ncclComm_t)> calls) {
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
  RETURN_IF_ERROR(
      nccl_->StatusOf("ncclCommGetAsyncError", nccl_->get_async_error(comm_, &state), comm_));
  RETURN_IF_ERROR(nccl_->StatusOf("NCCL", state, comm_));
  return state;
}

absl::Status NcclCommunicator::AwaitReady(absl::Time deadline,
                                          absl::FunctionRef<absl::Status()> failed) {
  for (absl::Duration pause = absl::Microseconds(2);;
       pause = std::min(2 * pause, absl::Milliseconds(1))) {
    ASSIGN_OR_RETURN(const ncclResult_t state, State());
    if (state == ncclSuccess) return absl::OkStatus();
    RETURN_IF_ERROR(failed());
    if (absl::Now() > deadline)
      return absl::DeadlineExceededError("NCCL did not get ready in time");
    absl::SleepFor(pause);
  }
}

absl::Status NcclCommunicator::AsyncError() {
  const absl::Status status = State().status();
  // This rank itself ended the communicator.
  return absl::IsCancelled(status) ? absl::OkStatus() : status;
}

absl::StatusOr<std::unique_ptr<NcclCommunicator>> NcclCommunicator::Split(
    int color, int key, absl::Time deadline, absl::FunctionRef<absl::Status()> failed) {
  TANDEM_CHECK_GE(color, 0) << "NCCL's colors";
  ncclConfig_t config = NonBlocking();
  // NCCL stores the child when its work ends, even if this rank no longer waits. In that case the
  // memory is left to NCCL.
  auto child = std::make_unique<ncclComm_t>(nullptr);
  const auto split = [&]() -> absl::Status {
    absl::MutexLock lock(&mutex_);
    if (comm_ == nullptr) return Ended();
    RETURN_IF_ERROR(cuda::UseDevice(device_.index));
    return nccl_->StatusOf("ncclCommSplit", nccl_->split(comm_, color, key, child.get(), &config),
                           comm_);
  };
  absl::Status status = split();
  if (status.ok()) status = AwaitReady(deadline, failed);
  if (!status.ok() && !Abort()) {
    child.release();
    return status;
  }
  std::unique_ptr<NcclCommunicator> made(new NcclCommunicator(nccl_, *child, device_));
  if (status.ok()) status = made->AwaitReady(deadline, failed);
  if (!status.ok()) {
    Abort();
    return status;
  }
  return made;
}

absl::StatusOr<int> NcclCommunicator::Rank() { return Ask("ncclCommUserRank", nccl_->user_rank); }
absl::StatusOr<int> NcclCommunicator::Size() { return Ask("ncclCommCount", nccl_->count); }

absl::StatusOr<int> NcclCommunicator::Ask(const char* name,
                                          ncclResult_t (*function)(ncclComm_t, int*)) {
  absl::MutexLock lock(&mutex_);
  if (comm_ == nullptr) return Ended();
  int answer = 0;
  RETURN_IF_ERROR(nccl_->StatusOf(name, function(comm_, &answer), comm_));
  return answer;
}

bool NcclCommunicator::Abort() {
  const ncclComm_t comm = Take();
  return comm != nullptr && End(nccl_->abort, comm, device_);
}

ncclComm_t NcclCommunicator::Take() {
  absl::MutexLock lock(&mutex_);
  return std::exchange(comm_, nullptr);
}

void NcclCommunicator::Finish(absl::Time deadline) {
  {
    absl::MutexLock lock(&mutex_);
    if (comm_ == nullptr) return;
    cuda::UseDevice(device_.index).IgnoreError();
    nccl_->finalize(comm_);
  }
  if (!AwaitReady(deadline, NeverFails).ok()) {
    Abort();
    return;
  }
  if (const ncclComm_t comm = Take(); comm != nullptr) End(nccl_->destroy, comm, device_);
}

}  // namespace tandem::comm
