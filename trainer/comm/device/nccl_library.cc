#include "trainer/comm/device/nccl_library.h"

#include <cstdlib>
#include <string>

#include "absl/base/const_init.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "kernels/base/dynamic_library.h"
#include "kernels/base/status_macros.h"

namespace tandem::comm {

namespace {

absl::StatusOr<NcclLibrary> Load() {
  ASSIGN_OR_RETURN(
      const DynamicLibrary library,
      DynamicLibrary::Load({"libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2", "libnccl.so"}));
  NcclLibrary nccl;
  RETURN_IF_ERROR(library.Find("ncclGetVersion", nccl.get_version));
  int version = 0;
  if (nccl.get_version(&version) != ncclSuccess ||
      version < NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, 0)) {
    return absl::NotFoundError(absl::StrCat(library.name(), " is of version ", version,
                                            "; this binary was built for ", NCCL_VERSION_CODE,
                                            " and needs at least its minor version"));
  }
  RETURN_IF_ERROR(library.Find("ncclGetUniqueId", nccl.get_unique_id));
  RETURN_IF_ERROR(library.Find("ncclGetErrorString", nccl.get_error_string));
  RETURN_IF_ERROR(library.Find("ncclGetLastError", nccl.get_last_error));
  RETURN_IF_ERROR(library.Find("ncclCommInitRankConfig", nccl.init_rank));
  RETURN_IF_ERROR(library.Find("ncclCommGetAsyncError", nccl.get_async_error));
  RETURN_IF_ERROR(library.Find("ncclCommFinalize", nccl.finalize));
  RETURN_IF_ERROR(library.Find("ncclCommDestroy", nccl.destroy));
  RETURN_IF_ERROR(library.Find("ncclCommAbort", nccl.abort));
  RETURN_IF_ERROR(library.Find("ncclCommSplit", nccl.split));
  RETURN_IF_ERROR(library.Find("ncclCommCount", nccl.count));
  RETURN_IF_ERROR(library.Find("ncclCommUserRank", nccl.user_rank));
  RETURN_IF_ERROR(library.Find("ncclAllReduce", nccl.all_reduce));
  RETURN_IF_ERROR(library.Find("ncclAllGather", nccl.all_gather));
  RETURN_IF_ERROR(library.Find("ncclReduceScatter", nccl.reduce_scatter));
  RETURN_IF_ERROR(library.Find("ncclBroadcast", nccl.broadcast));
  RETURN_IF_ERROR(library.Find("ncclSend", nccl.send));
  RETURN_IF_ERROR(library.Find("ncclRecv", nccl.recv));
  RETURN_IF_ERROR(library.Find("ncclGroupStart", nccl.group_start));
  RETURN_IF_ERROR(library.Find("ncclGroupEnd", nccl.group_end));
  return nccl;
}

}  // namespace

absl::StatusOr<const NcclLibrary*> NcclLibrary::Get() {
  static absl::Mutex mutex(absl::kConstInit);
  static const NcclLibrary* loaded = nullptr;
  absl::MutexLock lock(&mutex);
  // The variable would override the communicators' configuration, and their calls would then wait
  // without a deadline.
  const char* const blocking = std::getenv("NCCL_COMM_BLOCKING");
  if (blocking != nullptr && std::string(blocking) == "1") {
    return absl::FailedPreconditionError("NCCL_COMM_BLOCKING=1 is set in the environment");
  }
  if (loaded == nullptr) {
    ASSIGN_OR_RETURN(const NcclLibrary nccl, Load());
    loaded = new NcclLibrary(nccl);
  }
  return loaded;
}

absl::Status NcclLibrary::StatusOf(const char* function, ncclResult_t result,
                                   ncclComm_t comm) const {
  if (result == ncclSuccess || result == ncclInProgress) return absl::OkStatus();
  // A peer's end shows as a network error.
  const bool is_peer = result == ncclRemoteError || result == ncclSystemError;
  const absl::StatusCode code = is_peer                         ? absl::StatusCode::kUnavailable
                                : result == ncclInvalidArgument ? absl::StatusCode::kInvalidArgument
                                                                : absl::StatusCode::kInternal;
  const char* const last = comm != nullptr ? get_last_error(comm) : nullptr;
  std::string message = absl::StrCat(function, ": ", get_error_string(result));
  if (last != nullptr && last[0] != '\0') absl::StrAppend(&message, " (", last, ")");
  return absl::Status(code, message);
}

}  // namespace tandem::comm
