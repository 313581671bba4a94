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
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <nccl.h>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/emulator/emulated_queue.h"

extern "C" {
EmulatedNccl emulated_nccl;
}

namespace {

using Clock =
    std::chrono::system_clock;  // not the steady one: thread sanitizers do not follow waits by it
constexpr int kPolls = 2;
constexpr auto kPatience = std::chrono::milliseconds(1);
constexpr char kStillBusy[] =
    "used before ncclCommGetAsyncError said that the call before was over";

enum class Kind { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, SEND, RECV };
constexpr int kNoPeer = -1;

struct Range {
  const char* begin = nullptr;
  size_t bytes = 0;

  bool operator==(const Range&) const = default;
  bool Meets(const Range& other) const {
    return bytes > 0 && other.bytes > 0 && begin < other.begin + other.bytes &&
           other.begin < begin + bytes;
  }
};

struct Operation {
  Kind kind;
  const void* from;
  void* to;
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t reduction = ncclSum;
  int peer = kNoPeer;  // the root of a broadcast too
  EmulatedQueue* queue = nullptr;
  Range reads = {}, writes = {};
  bool in_place = false;  // in the one way that the library allows for its kind
  bool done = false;

  bool IsMessage() const { return kind == Kind::SEND || kind == Kind::RECV; }
  bool Fits(const Operation& other) const {
    return kind == other.kind && count == other.count && type == other.type &&
           reduction == other.reduction && peer == other.peer;
  }
};

// The work that enters the queues at once: one operation, or one communicator's operations of a
// group.
struct Submission {
  std::vector<Operation> collectives, messages;
  bool collectives_done = false;
  std::vector<std::pair<EmulatedQueue*, int64_t>> places;

  bool HasCollectives() const { return !collectives.empty() && !collectives_done; }
  bool IsDone() const {
    return !HasCollectives() && std::all_of(messages.begin(), messages.end(),
                                            [](const Operation& op) { return op.done; });
  }
  // Returns true if all earlier work of its queues is done.
  bool IsFirstInItsQueues() const {
    auto is_first = [](const auto& place) { return place.first->completed == place.second - 1; };
    return std::all_of(places.begin(), places.end(), is_first);
  }
};

struct Communicator;

struct SplitCall {
  int color, key;
  std::shared_ptr<Communicator> child;  // null without a colour
};

// The ranks of a communicator that have come so far.
struct Clique {
  explicit Clique(int size) : members(size), came(size), splits(size) {}
  int size() const { return static_cast<int>(members.size()); }

  std::vector<Communicator*> members;  // null: did not come, or is gone
  std::vector<bool> came;
  std::vector<std::optional<SplitCall>> splits;
  bool met = false, fails = false;
};

// Submissions of a group that is still on its way to the queues. All of them enter together, in
// order.
struct Launch {
  std::vector<std::pair<std::shared_ptr<Communicator>, Submission>> submissions;
};

enum class Busy { NO, INIT, SPLIT, LAUNCH, FINALIZE };

struct Communicator {
  std::shared_ptr<Clique> clique;  // null before a split is done, and of a rank that came twice
  int rank = 0, world_rank = 0;

  Busy busy = Busy::NO;
  int polls = 0;
  Clock::time_point due;  // when it need not be asked any more
  bool has_split = false, is_finalized = false, is_gone = false;
  ncclResult_t error = ncclSuccess;
  std::string last_error;

  int num_submissions = 0;
  std::shared_ptr<Launch> launch;
  std::deque<Submission> outstanding;  // on the queues; only the first progresses
  std::thread thread;

  bool IsLaunching() const { return launch != nullptr && !launch->submissions.empty(); }
};

struct Library {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<ncclComm_t, std::shared_ptr<Communicator>> live;
  uintptr_t last_handle = 0;
  std::map<std::string, std::shared_ptr<Clique>>
      cliques;  // by unique id; null until the first rank comes
  std::mt19937_64 random{std::random_device()()};
  std::string last_error = "no error so far";
};

Library& TheLibrary() {
  static auto* const library =
      new Library;  // never destroyed: threads of communicators that are left over still look at it
  return *library;
}

// The operations that this thread has queued since its outermost ncclGroupStart.
struct Group {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<std::pair<ncclComm_t, Operation>> operations;
};
thread_local Group group;

// REQUIRES: the caller of any function below holds the library's mutex, unless the function says
// otherwise.

ncclResult_t Refuse(ncclResult_t result, const std::string& why,
                    Communicator* communicator = nullptr) {
  ++emulated_nccl.misuses;
  TheLibrary().last_error = why;
  if (communicator != nullptr) communicator->last_error = why;
  return result;
}

void Fail(Communicator& communicator, ncclResult_t error, const std::string& why) {
  if (communicator.error != ncclSuccess) return;
  communicator.error = error;
  communicator.last_error = why;
  TheLibrary().last_error = why;
}

ncclResult_t ErrorOf(Communicator& communicator) {
  const int failing = emulated_nccl.async_error_rank;
  if (failing >= 0 && failing == communicator.world_rank)
    Fail(communicator, ncclSystemError, "the emulated network failed");
  return communicator.error;
}

size_t SizeOf(ncclDataType_t type) {
  switch (type) {
    case ncclUint8:
      return 1;
    case ncclBfloat16:
      return 2;
    case ncclFloat32:
      return 4;
    case ncclFloat64:
    case ncclInt64:
    case ncclUint64:
      return 8;
    default:
      return 0;
  }
}

template <class T>
void CombineAs(void* into, const void* from, size_t count, ncclRedOp_t reduction) {
  auto* sums = static_cast<T*>(into);
  const auto* terms = static_cast<const T*>(from);
  for (size_t i = 0; i < count; ++i) {
    if (reduction == ncclSum)
      sums[i] = static_cast<T>(sums[i] + terms[i]);
    else
      sums[i] = reduction == ncclMax ? std::max(sums[i], terms[i]) : std::min(sums[i], terms[i]);
  }
}

void Combine(void* into, const void* from, size_t count, ncclDataType_t type,
             ncclRedOp_t reduction) {
  switch (type) {
    case ncclUint8:
      return CombineAs<uint8_t>(into, from, count, reduction);
    case ncclInt64:
      return CombineAs<int64_t>(into, from, count, reduction);
    case ncclUint64:
      return CombineAs<uint64_t>(into, from, count, reduction);
    case ncclFloat32:
      return CombineAs<float>(into, from, count, reduction);
    default:
      return CombineAs<double>(into, from, count, reduction);
  }
}

// Runs one collective of all ranks. Computes the result aside, because outputs may overlap inputs.
void Run(const std::vector<const Operation*>& ranks) {
  const Operation& op = *ranks[0];
  const size_t size = ranks.size(), bytes = op.count * SizeOf(op.type);
  std::vector<char> result;
  auto append = [&](const void* from, size_t num_bytes) {
    result.insert(result.end(), static_cast<const char*>(from),
                  static_cast<const char*>(from) + num_bytes);
  };
  if (op.kind == Kind::BROADCAST) {
    append(ranks[op.peer]->from, bytes);
  } else if (op.kind == Kind::ALL_GATHER) {
    for (const Operation* rank : ranks) append(rank->from, bytes);
  } else {
    const size_t count = op.kind == Kind::REDUCE_SCATTER ? size * op.count : op.count;
    append(op.from, count * SizeOf(op.type));
    for (size_t r = 1; r < size; ++r)
      Combine(result.data(), ranks[r]->from, count, op.type, op.reduction);
  }
  for (size_t r = 0; r < size; ++r) {
    std::memcpy(ranks[r]->to, result.data() + (op.kind == Kind::REDUCE_SCATTER ? r * bytes : 0),
                ranks[r]->writes.bytes);
  }
}

// Ranks must agree on all collectives of a submission and on their number: the library runs them as
// one.
bool RunCollectives(const std::vector<Submission*>& active) {
  for (const Submission* submission : active) {
    if (submission == nullptr || !submission->HasCollectives()) return false;
    if (submission->collectives.size() != active[0]->collectives.size()) return false;
  }
  const size_t num_collectives = active[0]->collectives.size();
  for (size_t i = 0; i < num_collectives; ++i) {
    for (const Submission* submission : active) {
      if (!submission->collectives[i].Fits(active[0]->collectives[i])) return false;
    }
  }
  for (size_t i = 0; i < num_collectives; ++i) {
    std::vector<const Operation*> ranks;
    for (const Submission* submission : active) ranks.push_back(&submission->collectives[i]);
    Run(ranks);
  }
  for (Submission* submission : active) submission->collectives_done = true;
  return true;
}

Operation* NextMessage(Submission& submission, Kind kind, int peer) {
  for (Operation& op : submission.messages) {
    if (!op.done && op.kind == kind && op.peer == peer) return &op;
  }
  return nullptr;
}

// Messages of two ranks match in order. A message that does not fit its partner holds up the
// messages behind it.
bool RunMessages(const std::vector<Submission*>& active) {
  bool progress = false;
  const int size = static_cast<int>(active.size());
  for (int from = 0; from < size; ++from) {
    for (int to = 0; to < size; ++to) {
      while (active[from] != nullptr && active[to] != nullptr) {
        Operation* const send = NextMessage(*active[from], Kind::SEND, to);
        Operation* const recv = NextMessage(*active[to], Kind::RECV, from);
        if (send == nullptr || recv == nullptr || send->count != recv->count ||
            send->type != recv->type)
          break;
        if (send->reads.bytes > 0) std::memmove(recv->to, send->from, send->reads.bytes);
        send->done = recv->done = progress = true;
      }
    }
  }
  return progress;
}

void Complete(const Submission& submission) {
  for (const auto& [queue, number] : submission.places) queue->Complete(number);
}

// Does what the ranks' first submissions allow. The first rank's thread that comes does it for all
// ranks.
bool Progress(Clique& clique) {
  std::vector<Submission*> active;
  for (Communicator* member : clique.members) {
    const bool runs = member != nullptr && ErrorOf(*member) == ncclSuccess &&
                      !member->outstanding.empty() &&
                      member->outstanding.front().IsFirstInItsQueues();
    active.push_back(runs ? &member->outstanding.front() : nullptr);
  }
  bool progress = RunCollectives(active);
  progress |= RunMessages(active);
  for (int r = 0; r < clique.size(); ++r) {
    if (active[r] == nullptr || !active[r]->IsDone()) continue;
    Complete(*active[r]);
    clique.members[r]->outstanding.pop_front();
    progress = true;
  }
  return progress;
}

void Enter(Communicator& communicator, Submission submission) {
  for (auto& [queue, number] : submission.places) number = queue->Submit();
  communicator.outstanding.push_back(std::move(submission));
  TheLibrary().changed.notify_all();
}

void Enter(Launch& launch) {
  for (auto& [communicator, submission] : launch.submissions) {
    if (!communicator->is_gone) Enter(*communicator, std::move(submission));
  }
  launch.submissions.clear();
}

// The body of a communicator's thread. Enqueues work that no caller polls for, and runs queued
// work. Takes the mutex itself.
void Serve(const std::shared_ptr<Communicator>& communicator) {
  Library& library = TheLibrary();
  std::unique_lock lock(library.mutex);
  while (!communicator->is_gone) {
    if (communicator->IsLaunching() && Clock::now() >= communicator->due)
      Enter(*communicator->launch);
    if (communicator->clique != nullptr && Progress(*communicator->clique)) {
      library.changed.notify_all();  // other communicators may share its queues
    } else if (communicator->IsLaunching()) {
      library.changed.wait_until(lock, communicator->due);
    } else {
      library.changed.wait(lock);
    }
  }
}

void Begin(Communicator& communicator, Busy busy) {
  communicator.busy = busy;
  communicator.polls = 0;
  communicator.due = Clock::now() + kPatience;
}

// Handles are numbers that never repeat, so that a destroyed handle is never mistaken for another.
ncclComm_t Add(const std::shared_ptr<Communicator>& communicator) {
  Library& library = TheLibrary();
  library.last_handle += 16;
  const auto handle = reinterpret_cast<ncclComm_t>(library.last_handle);
  library.live[handle] = communicator;
  ++emulated_nccl.live_communicators;
  Begin(*communicator, Busy::INIT);
  communicator->thread = std::thread([communicator] { Serve(communicator); });
  return handle;
}

void Join(Clique& clique, Communicator& communicator) {
  clique.members[communicator.rank] = &communicator;
  clique.came[communicator.rank] = true;
  const auto& members = clique.members;
  if (std::find(members.begin(), members.end(), nullptr) != members.end()) return;
  clique.met = true;
  for (Communicator* member : members) {
    if (clique.fails)
      Fail(*member, ncclInvalidUsage, "Duplicate GPU detected: ranks share an emulated device");
  }
}

// Makes the children as soon as every rank has given its colour.
void FinishSplit(Clique& clique) {
  std::map<int, std::vector<std::tuple<int, int, std::shared_ptr<Communicator>>>> colors;
  for (int r = 0; r < clique.size(); ++r) {
    if (!clique.splits[r].has_value()) return;
    const SplitCall& call = *clique.splits[r];
    if (call.child != nullptr) colors[call.color].emplace_back(call.key, r, call.child);
  }
  for (auto& [color, children] : colors) {
    std::sort(children.begin(), children.end());
    auto made = std::make_shared<Clique>(static_cast<int>(children.size()));
    for (size_t rank = 0; rank < children.size(); ++rank) {
      Communicator& child = *std::get<2>(children[rank]);
      child.rank = static_cast<int>(rank);
      child.clique = made;
      if (!child.is_gone) Join(*made, child);
    }
  }
  for (int r = 0; r < clique.size(); ++r) {
    clique.splits[r].reset();
    clique.members[r]->has_split = true;
  }
}

// Returns true if the communicator's pending operation is complete. A launch may always complete.
bool IsOver(const Communicator& communicator) {
  switch (communicator.busy) {
    case Busy::INIT:
      return communicator.clique != nullptr && communicator.clique->met;
    case Busy::SPLIT:
      return communicator.has_split;
    case Busy::FINALIZE:
      return communicator.outstanding.empty();
    default:
      return true;
  }
}

ncclResult_t Poll(Communicator& communicator) {
  if (ErrorOf(communicator) != ncclSuccess) return communicator.error;
  if (communicator.busy == Busy::NO) return ncclSuccess;
  const bool is_patient = ++communicator.polls > kPolls || Clock::now() >= communicator.due;
  if (!is_patient || !IsOver(communicator)) return ncclInProgress;
  if (communicator.launch != nullptr) Enter(*communicator.launch);
  communicator.launch = nullptr;
  communicator.busy = Busy::NO;
  return ncclSuccess;
}

ncclResult_t Find(ncclComm_t handle, std::shared_ptr<Communicator>& found) {
  const auto place = TheLibrary().live.find(handle);
  if (place == TheLibrary().live.end())
    return Refuse(ncclInvalidArgument, "no such communicator, or no more");
  found = place->second;
  return ncclSuccess;
}

// Finds the communicator for calls that need one that is neither busy nor broken.
ncclResult_t FindReady(ncclComm_t handle, std::shared_ptr<Communicator>& found) {
  const ncclResult_t result = Find(handle, found);
  if (result != ncclSuccess) return result;
  if (ErrorOf(*found) != ncclSuccess) return found->error;
  if (found->busy != Busy::NO) return Refuse(ncclInvalidUsage, kStillBusy, found.get());
  if (found->is_finalized)
    return Refuse(ncclInvalidUsage, "used after ncclCommFinalize", found.get());
  return ncclSuccess;
}

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
  const bool reduces = op.kind == Kind::ALL_REDUCE || op.kind == Kind::REDUCE_SCATTER;
  if (SizeOf(op.type) == 0 || (reduces && op.type == ncclBfloat16))
    return "this data type is not emulated here";
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

// Ends the communicator: its queued work counts as done and never runs. Takes over `lock`.
void End(ncclComm_t handle, const std::shared_ptr<Communicator>& communicator,
         std::unique_lock<std::mutex> lock) {
  communicator->is_gone = true;
  for (const Submission& submission : communicator->outstanding) Complete(submission);
  communicator->outstanding.clear();
  communicator->launch = nullptr;
  if (Clique* const clique = communicator->clique.get(); clique != nullptr) {
    clique->splits[communicator->rank].reset();
    clique->members[communicator->rank] = nullptr;
  }
  TheLibrary().live.erase(handle);
  TheLibrary().changed.notify_all();
  lock.unlock();
  communicator->thread.join();
  --emulated_nccl.live_communicators;
}

}  // namespace

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
