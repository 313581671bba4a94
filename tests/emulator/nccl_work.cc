#include "tests/emulator/nccl_work.h"

#include <algorithm>
#include <cstring>

#include "kernels/base/bfloat16.h"

namespace nccl_stand_in {

namespace {

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

// Rounds at every addition, as a ring over NCCL does.
void CombineBf16(void* into, const void* from, size_t count, ncclRedOp_t reduction) {
  auto* sums = static_cast<tandem::BFloat16*>(into);
  const auto* terms = static_cast<const tandem::BFloat16*>(from);
  for (size_t i = 0; i < count; ++i) {
    float sum = tandem::ToFloat(sums[i]);
    const float term = tandem::ToFloat(terms[i]);
    CombineAs<float>(&sum, &term, 1, reduction);
    sums[i] = tandem::ToBFloat16(sum);
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
    case ncclBfloat16:
      return CombineBf16(into, from, count, reduction);
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

}  // namespace

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

void Complete(const Submission& submission) {
  for (const auto& [queue, number] : submission.places) queue->Complete(number);
}

void Enter(Launch& launch) {
  for (auto& [communicator, submission] : launch.submissions) {
    if (!communicator->is_gone) Enter(*communicator, std::move(submission));
  }
  launch.submissions.clear();
}

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

}  // namespace nccl_stand_in
