// One non-blocking NCCL communicator. Each NCCL call returns at once. So after each call the
// communicator is polled until it is ready again or a deadline passes. Only
// trainer/comm/device/nccl_*.cc include this file.
// Thread rule: any thread; calls are serialised inside. After Abort or Finish the object does
// nothing.
#pragma once

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "trainer/comm/device/nccl_group.h"
#include "trainer/comm/device/nccl_library.h"

namespace tandem::comm {

class NcclCommunicator {
 public:
  // Collective over all ranks. DeadlineExceeded names the missing ranks.
  static absl::StatusOr<std::unique_ptr<NcclCommunicator>> Connect(const NcclGroupOptions& options,
                                                                   absl::Time deadline);
  ~NcclCommunicator() { Abort(); }
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  // Runs `calls`, which submit operations; as one NCCL group if `grouped`.
  absl::Status Submit(bool grouped,
                      absl::FunctionRef<ncclResult_t(const NcclLibrary&, ncclComm_t)> calls);
  // Waits until the submitted operations have started. Returns Ok, their error, DeadlineExceeded,
  // or the status of `failed` if that is not Ok.
  absl::Status AwaitReady(absl::Time deadline, absl::FunctionRef<absl::Status()> failed);
  // Returns the communicator's asynchronous error. Ok also while an operation is being started.
  absl::Status AsyncError();
  // Makes a communicator of the ranks that pass the same color, ordered by (key, rank). Collective.
  // Aborts this communicator after an error.
  // REQUIRES: color >= 0, and nothing is being submitted.
  absl::StatusOr<std::unique_ptr<NcclCommunicator>> Split(int color, int key, absl::Time deadline,
                                                          absl::FunctionRef<absl::Status()> failed);
  absl::StatusOr<int> Rank();
  absl::StatusOr<int> Size();

  // Ends the communicator's kernels at once. NCCL then also waits for other processes of the
  // machine, and some may hang. After some seconds Abort leaves NCCL alone with what it still
  // holds. Returns true if this call ended the communicator.
  bool Abort();
  // Waits for the communicator's kernels and destroys it; aborts it at the deadline.
  void Finish(absl::Time deadline);

 private:
  NcclCommunicator(const NcclLibrary* nccl, ncclComm_t comm, Device device)
      : nccl_(nccl), device_(device), comm_(comm) {}
  absl::StatusOr<ncclResult_t> State();
  absl::StatusOr<int> Ask(const char* name, ncclResult_t (*function)(ncclComm_t, int*));
  ncclComm_t Take();  // null if the communicator is already gone

  const NcclLibrary* const nccl_;
  const Device device_;
  absl::Mutex mutex_;
  ncclComm_t comm_ ABSL_GUARDED_BY(mutex_);  // null after Abort and Finish
};

}  // namespace tandem::comm
