// One communicator of NCCL that does not block. Whatever it is asked for goes on by itself, so each call is followed by asking
// whether the communicator is ready again, until a deadline. Only trainer/comm/nccl_*.cc include this file.
// Thread rule: any thread, a call at a time inside; after Abort or Finish nothing is left but an object that does nothing.
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
  // Collective over all ranks. DeadlineExceeded names those that did not come.
  static absl::StatusOr<std::unique_ptr<NcclCommunicator>> Connect(const NcclGroupOptions& options, absl::Time deadline);
  ~NcclCommunicator() { Abort(); }
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  // Runs `calls`, which submit operations, as one group of NCCL's if `grouped`.
  absl::Status Submit(bool grouped, absl::FunctionRef<ncclResult_t(const NcclLibrary&, ncclComm_t)> calls);
  // Until what was asked for is under way: Ok, its error, DeadlineExceeded, or what `failed` returns if that is not Ok.
  absl::Status AwaitReady(absl::Time deadline, absl::FunctionRef<absl::Status()> failed);
  // Ok also while something is being started.
  absl::Status AsyncError();
  // Collective: the ranks that pass the same color, ordered by (key, rank). REQUIRES: color >= 0, and nothing is being submitted. After
  // an error this communicator is aborted.
  absl::StatusOr<std::unique_ptr<NcclCommunicator>> Split(int color, int key, absl::Time deadline,
                                                          absl::FunctionRef<absl::Status()> failed);
  absl::StatusOr<int> Rank();
  absl::StatusOr<int> Size();

  // Ends its kernels at once. NCCL also waits for other processes of the machine then, some of which may hang: after some seconds it is
  // left alone with what it still holds. True if this call ended it.
  bool Abort();
  // Waits for its kernels and ends it, or aborts it at the deadline.
  void Finish(absl::Time deadline);

 private:
  NcclCommunicator(const NcclLibrary* nccl, ncclComm_t comm, Device device) : nccl_(nccl), device_(device), comm_(comm) {}
  absl::StatusOr<ncclResult_t> State();
  absl::StatusOr<int> Ask(const char* name, ncclResult_t (*function)(ncclComm_t, int*));
  ncclComm_t Take();  // null if there is none any more

  const NcclLibrary* const nccl_;
  const Device device_;
  absl::Mutex mutex_;
  ncclComm_t comm_ ABSL_GUARDED_BY(mutex_);  // null after Abort and Finish
};

}  // namespace tandem::comm
