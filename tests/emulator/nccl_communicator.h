// The communicators of the stand-in for NCCL: who came, what they are busy with, and the work that
// they have given to queues. nccl_emulated.cc says how strict the stand-in is.
// Thread rule: one mutex, the library's, guards everything here. REQUIRES: the caller of any
// function holds the mutex, unless the function says otherwise.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <nccl.h>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/emulator/emulated_queue.h"
#include "tests/emulator/nccl_emulated.h"

extern "C" EmulatedNccl emulated_nccl;

namespace nccl_stand_in {

// Not the steady clock: thread sanitizers do not follow waits by it.
using Clock = std::chrono::system_clock;

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

inline constexpr char kStillBusy[] =
    "used before ncclCommGetAsyncError said that the call before was over";

Library& TheLibrary();

// Counts a misuse, keeps the reason for ncclGetLastError, and returns `result`.
ncclResult_t Refuse(ncclResult_t result, const std::string& why,
                    Communicator* communicator = nullptr);
// Keeps the first error of a communicator.
void Fail(Communicator& communicator, ncclResult_t error, const std::string& why);
ncclResult_t ErrorOf(Communicator& communicator);

// A call that ends later: ncclInProgress until Poll finds it over.
void Begin(Communicator& communicator, Busy busy);
ncclResult_t Poll(Communicator& communicator);
// Gives a communicator its handle and its thread.
ncclComm_t Add(const std::shared_ptr<Communicator>& communicator);
// The communicator comes to its clique, as the rank that it has.
void Join(Clique& clique, Communicator& communicator);
// Makes the children as soon as every rank has given its colour.
void FinishSplit(Clique& clique);
ncclResult_t Find(ncclComm_t handle, std::shared_ptr<Communicator>& found);
// Finds the communicator for calls that need one that is neither busy nor broken.
ncclResult_t FindReady(ncclComm_t handle, std::shared_ptr<Communicator>& found);
// Ends the communicator: its queued work counts as done and never runs. Takes over `lock`.
void End(ncclComm_t handle, const std::shared_ptr<Communicator>& communicator,
         std::unique_lock<std::mutex> lock);

}  // namespace nccl_stand_in
