// The NCCL functions used here. They are loaded on first use, so the program starts on machines
// without NCCL. Only trainer/comm/device/nccl_*.cc include this file.
// Thread rule: any thread.
#pragma once

#include <nccl.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem::comm {

struct NcclLibrary {
  decltype(&ncclGetVersion) get_version;
  decltype(&ncclGetUniqueId) get_unique_id;
  decltype(&ncclGetErrorString) get_error_string;
  decltype(&ncclGetLastError) get_last_error;
  decltype(&ncclCommInitRankConfig) init_rank;
  decltype(&ncclCommGetAsyncError) get_async_error;
  decltype(&ncclCommFinalize) finalize;
  decltype(&ncclCommDestroy) destroy;
  decltype(&ncclCommAbort) abort;
  decltype(&ncclCommSplit) split;
  decltype(&ncclCommCount) count;
  decltype(&ncclCommUserRank) user_rank;
  decltype(&ncclAllReduce) all_reduce;
  decltype(&ncclAllGather) all_gather;
  decltype(&ncclReduceScatter) reduce_scatter;
  decltype(&ncclBroadcast) broadcast;
  decltype(&ncclSend) send;
  decltype(&ncclRecv) recv;
  decltype(&ncclGroupStart) group_start;
  decltype(&ncclGroupEnd) group_end;

  // Returns the library, which the first successful call loads. The library lives as long as the
  // process. NotFound if NCCL is not installed or is older than the minor version of the header.
  static absl::StatusOr<const NcclLibrary*> Get();

  // Converts a result of `function`; ncclInProgress counts as Ok. A `comm` that is not null adds
  // its last error message.
  absl::Status StatusOf(const char* function, ncclResult_t result, ncclComm_t comm) const;
};

}  // namespace tandem::comm
