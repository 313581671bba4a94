// A stand-in for libnccl, with which it shares nccl.h. Ranks are threads of one process; streams
// are EmulatedQueues.
// Supports non-blocking communicators only. The stand-in is as strict as the documentation, and as
// slow as the documentation allows:
// - After ncclInProgress only ncclCommGetAsyncError, ncclGetLastError and ncclCommAbort are
// allowed, until ncclCommGetAsyncError says ncclSuccess. Success takes more than two questions or a
// millisecond. Until then the work is not on its queue.
// - Sends wait for their receives. Ranks whose calls do not match wait for each other, silently,
// until they are aborted.
// - Aborted collectives leave their outputs unchanged. Use of a destroyed handle is detected.
// Not emulated: blocking communicators; init, split, finalize and destroy inside a group; a
// finalize that waits for other ranks.
// Thread rule, like the library's: one thread at a time uses a communicator. One mutex guards
// everything here.
#include "tests/emulator/nccl_emulated.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "tests/emulator/nccl_communicator.h"
#include "tests/emulator/nccl_work.h"

namespace nccl_stand_in {

namespace {

// The operations that this thread has queued since its outermost ncclGroupStart.
struct Group {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<std::pair<ncclComm_t, Operation>> operations;
};
thread_local Group group;

// REQUIRES: the caller of any function below holds the library's mutex, unless the function says
// otherwise.

ncclResult_t FindReadyOutsideGroups(ncclComm_t handle, std::shared_ptr<Communicator>& found) {
  if (group.depth > 0) return Refuse(ncclInvalidUsage, "not emulated inside a group");
  return FindReady(handle, found);
}

std::string ConfigComplaint(const ncclConfig_t* config) {
  const ncclConfig_t fresh = NCCL_CONFIG_INITIALIZER;
  if (config == nullptr) return "no config, which asks for a blocking communicator";
  if (config->size != fresh.size || config->magic != fresh.magic ||
      config->version != fresh.version) {
    return "the config does not come from NCCL_CONFIG_INITIALIZER";
  }
  return config->blocking == 0 ? "" : "the config asks for a blocking communicator";
}

// Returns what is wrong with one operation, or "". Fills in the arrays that the operation reads and
// writes.
std::string Prepare(Operation& op, const Communicator& communicator) {
  const int rank = communicator.rank, size = communicator.clique->size();
  const size_t bytes = op.count * SizeOf(op.type);
  if (SizeOf(op.type) == 0) return "this data type is not emulated here";
  if (op.reduction != ncclSum && op.reduction != ncclMax && op.reduction != ncclMin)
    return "this reduction is not emulated";
  const bool has_peer = op.IsMessage() || op.kind == Kind::BROADCAST;
  if (has_peer && (op.peer < 0 || op.peer >= size)) return "no such peer or root";
  if (op.queue == nullptr) return "the emulated device has no default stream";

  const char *from = static_cast<const char*>(op.from), *to = static_cast<const char*>(op.to);
  const bool has_input = op.kind != Kind::RECV && (op.kind != Kind::BROADCAST || op.peer == rank);
  if (has_input) op.reads = {from, op.kind == Kind::REDUCE_SCATTER ? size * bytes : bytes};
  if (op.kind != Kind::SEND) op.writes = {to, op.kind == Kind::ALL_GATHER ? size * bytes : bytes};
  if ((op.reads.bytes > 0 && from == nullptr) || (op.writes.bytes > 0 && to == nullptr))
    return "a buffer is null";
  op.in_place = op.kind == Kind::ALL_GATHER       ? from == to + rank * bytes
                : op.kind == Kind::REDUCE_SCATTER ? to == from + rank * bytes
                                                  : from == to;
  return "";
}

// Operations of one submission run in any order and side by side. None may write an array that
// another reads or writes.
std::string OverlapComplaint(const std::vector<Operation>& ops) {
  for (const Operation& writer : ops) {
    for (const Operation& other : ops) {
      const bool same = &writer == &other;
      const bool to_itself =
          writer.kind == Kind::RECV && other.kind == Kind::SEND && writer.writes == other.reads;
      if (writer.writes.Meets(other.reads) && !(same && writer.in_place) && !to_itself)
        return "an output overlaps an input";
      if (writer.writes.Meets(other.writes) && !same) return "an output overlaps another";
    }
  }
  return "";
}

// Gives each communicator its operations, in the order of the calls.
std::vector<std::pair<std::shared_ptr<Communicator>, Submission>> Sort(
    const std::vector<std::pair<std::shared_ptr<Communicator>, Operation>>& operations) {
  std::vector<std::pair<std::shared_ptr<Communicator>, Submission>> sorted;
  for (const auto& [communicator, op] : operations) {
    auto place = std::find_if(sorted.begin(), sorted.end(),
                              [&](const auto& one) { return one.first == communicator; });
    if (place == sorted.end()) place = sorted.insert(place, {communicator, Submission{}});
    Submission& submission = place->second;
    const std::pair<EmulatedQueue*, int64_t> entry{op.queue, 0};
    if (std::find(submission.places.begin(), submission.places.end(), entry) ==
        submission.places.end()) {
      submission.places.push_back(entry);
    }
    if (op.IsMessage())
      submission.messages.push_back(op);
    else if (op.count > 0)
      submission.collectives.push_back(op);  // without elements it is nothing, not even a barrier
  }
  return sorted;
}

// Returns ncclInProgress and ncclSuccess in turn. Odd ranks start with the other one.
ncclResult_t Submit(
    const std::vector<std::pair<std::shared_ptr<Communicator>, Operation>>& operations) {
  emulated_nccl.num_operations += static_cast<int>(operations.size());
  auto launch = std::make_shared<Launch>(Launch{Sort(operations)});
  Communicator& first = *launch->submissions[0].first;
  const bool at_once = (first.rank + first.num_submissions) % 2 != 0;
  for (const auto& [communicator, submission] : launch->submissions) {
    ++communicator->num_submissions;
    if (at_once) continue;
    communicator->launch = launch;
    Begin(*communicator, Busy::LAUNCH);
  }
  if (at_once) Enter(*launch);
  TheLibrary().changed.notify_all();  // for the threads to see when it is due
  return at_once ? ncclSuccess : ncclInProgress;
}

// REQUIRES: the caller does not hold the mutex.
ncclResult_t Take(Operation op, ncclComm_t handle, cudaStream_t stream) {
  const std::lock_guard lock(TheLibrary().mutex);
  std::shared_ptr<Communicator> communicator;
  const ncclResult_t result = FindReady(handle, communicator);
  if (result != ncclSuccess) {
    const bool breaks_group =
        group.depth > 0 && group.error == ncclSuccess && result != ncclInvalidArgument;
    if (breaks_group) group.error = result;
    return result;
  }
  op.queue = reinterpret_cast<EmulatedQueue*>(stream);
  std::string complaint = Prepare(op, *communicator);
  if (complaint.empty()) complaint = OverlapComplaint({op});
  if (!complaint.empty()) return Refuse(ncclInvalidArgument, complaint, communicator.get());
  if (group.depth == 0) return Submit({{communicator, op}});
  group.operations.emplace_back(handle, op);
  return ncclSuccess;
}

}  // namespace

}  // namespace nccl_stand_in

using namespace nccl_stand_in;

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

// All bytes of the id count: a copy that loses some of them is the id of no communicator.
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  Library& library = TheLibrary();
  const std::lock_guard lock(library.mutex);
  for (char& byte : id->internal) byte = static_cast<char>(library.random());
  library.cliques[std::string(id->internal, sizeof id->internal)] = nullptr;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "a CUDA call failed";
    case ncclSystemError:
      return "a system call failed";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "a peer failed or is gone";
    case ncclInProgress:
      return "in progress";
    default:
      return "unknown result";
  }
}

const char* ncclGetLastError(ncclComm_t handle) {
  static thread_local char text[256];  // valid until the thread's next call
  Library& library = TheLibrary();
  const std::lock_guard lock(library.mutex);
  const auto place = library.live.find(handle);
  const bool has_own = place != library.live.end() && !place->second->last_error.empty();
  std::snprintf(text, sizeof text, "%s",
                has_own ? place->second->last_error.c_str() : library.last_error.c_str());
  return text;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* made, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  Library& library = TheLibrary();
  const std::lock_guard lock(library.mutex);
  if (group.depth > 0) return Refuse(ncclInvalidUsage, "not emulated inside a group");
  if (const std::string complaint = ConfigComplaint(config); !complaint.empty())
    return Refuse(ncclInvalidArgument, complaint);
  if (made == nullptr || size < 1 || rank < 0 || rank >= size)
    return Refuse(ncclInvalidArgument, "no such rank");
  const auto place = library.cliques.find(std::string(id.internal, sizeof id.internal));
  if (place == library.cliques.end())
    return Refuse(ncclInvalidArgument, "the unique id is not from ncclGetUniqueId");

  if (place->second == nullptr) place->second = std::make_shared<Clique>(size);
  Clique& clique = *place->second;
  auto communicator = std::make_shared<Communicator>();
  communicator->rank = communicator->world_rank = rank;
  *made = Add(communicator);
  if (clique.size() != size || clique.came[rank]) {
    const std::string why =
        clique.size() != size ? "ranks disagree on how many they are" : "a rank came twice";
    Fail(*communicator, Refuse(ncclInvalidUsage, why), why);
    return ncclInProgress;
  }
  clique.fails |= emulated_nccl.fails_init;
  communicator->clique = place->second;
  Join(clique, *communicator);
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* state) {
  const std::lock_guard lock(TheLibrary().mutex);
  std::shared_ptr<Communicator> communicator;
  const ncclResult_t result = Find(handle, communicator);
  if (result == ncclSuccess) *state = Poll(*communicator);
  return result;
}

ncclResult_t ncclCommFinalize(ncclComm_t handle) {
  const std::lock_guard lock(TheLibrary().mutex);
  std::shared_ptr<Communicator> communicator;
  const ncclResult_t result = FindReadyOutsideGroups(handle, communicator);
  if (result != ncclSuccess) return result;
  communicator->is_finalized = true;
  Begin(*communicator, Busy::FINALIZE);
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  if (handle == nullptr) return ncclSuccess;
  std::unique_lock lock(TheLibrary().mutex);
  std::shared_ptr<Communicator> communicator;
  if (group.depth > 0) return Refuse(ncclInvalidUsage, "not emulated inside a group");
  const ncclResult_t result = Find(handle, communicator);
  if (result != ncclSuccess) return result;
  if (ErrorOf(*communicator) != ncclSuccess)
    return communicator->error;  // such a one wants ncclCommAbort
  if (communicator->IsLaunching() || !communicator->outstanding.empty()) {
    std::fprintf(stderr,
                 "emulated NCCL: rank %d destroys a communicator before its operations are done\n",
                 communicator->rank);
    std::abort();
  }
  if (communicator->busy != Busy::NO && communicator->busy != Busy::FINALIZE) {
    return Refuse(ncclInvalidUsage, kStillBusy, communicator.get());
  }
  End(handle, communicator, std::move(lock));
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t handle) {
  if (handle == nullptr) return ncclSuccess;
  std::unique_lock lock(TheLibrary().mutex);
  std::shared_ptr<Communicator> communicator;
  const ncclResult_t result = Find(handle, communicator);
  if (result != ncclSuccess) return result;
  if (emulated_nccl.tells_peers && communicator->clique != nullptr) {
    for (Communicator* peer : communicator->clique->members) {
      if (peer != nullptr && peer != communicator.get())
        Fail(*peer, ncclRemoteError, "a peer aborted its communicator");
    }
  }
  End(handle, communicator, std::move(lock));
  while (emulated_nccl.abort_hangs) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return ncclSuccess;
}

ncclResult_t ncclCommSplit(ncclComm_t handle, int color, int key, ncclComm_t* made,
                           ncclConfig_t* config) {
  const std::lock_guard lock(TheLibrary().mutex);
  std::shared_ptr<Communicator> communicator;
  const ncclResult_t result = FindReadyOutsideGroups(handle, communicator);
  if (result != ncclSuccess) return result;
  const std::string complaint = config == nullptr ? "" : ConfigComplaint(config);
  if (!complaint.empty()) return Refuse(ncclInvalidArgument, complaint, communicator.get());
  if (made == nullptr || (color < 0 && color != NCCL_SPLIT_NOCOLOR)) {
    return Refuse(ncclInvalidArgument, "no such colour", communicator.get());
  }
  if (!communicator->outstanding.empty()) {
    return Refuse(ncclInvalidUsage, "split while operations are not done, which may deadlock",
                  communicator.get());
  }
  SplitCall call{color, key, nullptr};
  *made = nullptr;
  if (color != NCCL_SPLIT_NOCOLOR) {
    call.child = std::make_shared<Communicator>();
    call.child->world_rank = communicator->world_rank;
    *made = Add(call.child);
  }
  communicator->has_split = false;
  Begin(*communicator, Busy::SPLIT);
  communicator->clique->splits[communicator->rank] = call;
  FinishSplit(*communicator->clique);
  return ncclInProgress;
}

ncclResult_t ncclCommCount(const ncclComm_t handle, int* count) {
  const std::lock_guard lock(TheLibrary().mutex);
  std::shared_ptr<Communicator> communicator;
  const ncclResult_t result = FindReady(handle, communicator);
  if (result == ncclSuccess) *count = communicator->clique->size();
  return result;
}

ncclResult_t ncclCommUserRank(const ncclComm_t handle, int* rank) {
  const std::lock_guard lock(TheLibrary().mutex);
  std::shared_ptr<Communicator> communicator;
  const ncclResult_t result = FindReady(handle, communicator);
  if (result == ncclSuccess) *rank = communicator->rank;
  return result;
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclRedOp_t reduction, ncclComm_t comm, cudaStream_t stream) {
  return Take({Kind::ALL_REDUCE, from, to, count, type, reduction}, comm, stream);
}
ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type,
                               ncclRedOp_t reduction, ncclComm_t comm, cudaStream_t stream) {
  return Take({Kind::REDUCE_SCATTER, from, to, count, type, reduction}, comm, stream);
}
ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return Take({Kind::ALL_GATHER, from, to, count, type}, comm, stream);
}
ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return Take({Kind::BROADCAST, from, to, count, type, ncclSum, root}, comm, stream);
}
ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return Take({Kind::SEND, from, nullptr, count, type, ncclSum, peer}, comm, stream);
}
ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return Take({Kind::RECV, nullptr, to, count, type, ncclSum, peer}, comm, stream);
}

ncclResult_t ncclGroupStart() {
  ++group.depth;
  return ncclSuccess;
}

// An error in a group fails the whole group: no operation is submitted.
ncclResult_t ncclGroupEnd() {
  const std::lock_guard lock(TheLibrary().mutex);
  if (group.depth == 0) return Refuse(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  if (--group.depth > 0) return ncclSuccess;
  const Group ended = std::exchange(group, Group{});
  if (ended.error != ncclSuccess) return ended.error;
  if (ended.operations.empty()) return ncclSuccess;
  std::vector<std::pair<std::shared_ptr<Communicator>, Operation>> operations;
  std::vector<Operation> all;
  for (const auto& [handle, op] : ended.operations) {
    std::shared_ptr<Communicator> communicator;
    const ncclResult_t result = FindReady(handle, communicator);
    if (result != ncclSuccess) return result;
    operations.emplace_back(communicator, op);
    all.push_back(op);
  }
  if (const std::string complaint = OverlapComplaint(all); !complaint.empty())
    return Refuse(ncclInvalidUsage, complaint);
  ++emulated_nccl.num_groups;
  return Submit(operations);
}

}  // extern "C"
