#include "tests/emulator/nccl_communicator.h"

#include <algorithm>
#include <tuple>

#include "tests/emulator/nccl_work.h"

extern "C" {
EmulatedNccl emulated_nccl;
}

namespace nccl_stand_in {

namespace {

constexpr int kPolls = 2;
constexpr auto kPatience = std::chrono::milliseconds(1);

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

}  // namespace

Library& TheLibrary() {
  static auto* const library =
      new Library;  // never destroyed: threads of communicators that are left over still look at it
  return *library;
}

ncclResult_t Refuse(ncclResult_t result, const std::string& why, Communicator* communicator) {
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

ncclResult_t FindReady(ncclComm_t handle, std::shared_ptr<Communicator>& found) {
  const ncclResult_t result = Find(handle, found);
  if (result != ncclSuccess) return result;
  if (ErrorOf(*found) != ncclSuccess) return found->error;
  if (found->busy != Busy::NO) return Refuse(ncclInvalidUsage, kStillBusy, found.get());
  if (found->is_finalized)
    return Refuse(ncclInvalidUsage, "used after ncclCommFinalize", found.get());
  return ncclSuccess;
}

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

}  // namespace nccl_stand_in
