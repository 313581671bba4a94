#include "trainer/comm/host/thread_group.h"

#include <cstring>
#include <deque>
#include <map>
#include <numeric>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "trainer/comm/combine.h"
#include "trainer/comm/ring_order.h"
#include "trainer/comm/split_plan.h"

namespace tandem::comm {

namespace {

char* At(const ArrayView& view, int64_t element) {
  return static_cast<char*>(view.data) + element * static_cast<int64_t>(SizeOf(view.dtype));
}

// Handles empty arrays, which may have no address. Writes nothing in place, because others read.
void Copy(char* target, const char* source, int64_t count, DType dtype) {
  if (count > 0 && target != source)
    std::memmove(target, source, static_cast<size_t>(count) * SizeOf(dtype));
}

RankReduction ReductionOf(const Description& description, int size, int chunk) {
  return {description.dtype, description.op, description.order, size, chunk};
}

}  // namespace

// Ranks count their arrivals. Rank r may pass arrival k once every rank has arrived k times. A rank
// inside (between Enter and Leave) reads its peers' views. So a failing peer waits for that rank
// before it returns its own views.
class ThreadGroup::Room {
 public:
  Room(int size, ThreadGroup::Sending sending)
      : size_(size), sending_(sending), arrivals_(size, 0), operations_(size, nullptr) {}

  // The waiting rank, its deadline, and the error that names the missing ranks.
  struct Waiter {
    int rank;
    absl::Time deadline;
    absl::FunctionRef<absl::Status(const std::string& missing)> late;
  };

  // Publishes this rank's operation, waits for all ranks, and goes inside. Returns all operations.
  absl::StatusOr<std::vector<const Collective*>> Enter(const Waiter& waiter,
                                                       const Collective* mine) {
    absl::MutexLock lock(&mutex_);
    operations_[waiter.rank] = mine;
    RETURN_IF_ERROR(Arrive(waiter));
    if (!failure_.ok()) return failure_;  // a peer may have given up and left since it arrived
    ++inside_;
    return operations_;
  }

  // Goes outside and waits until all ranks have.
  absl::Status Leave(const Waiter& waiter) {
    absl::MutexLock lock(&mutex_);
    --inside_;
    return Arrive(waiter);
  }

  void Abort(int rank, const absl::Status& reason) {
    absl::MutexLock lock(&mutex_);
    Fail(rank, reason);
  }

  // Returns when no rank reads another's views any more. After a failure no rank begins to.
  void AwaitNobodyInside() {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(
        +[](int* inside) { return *inside == 0; }, &inside_));
  }

  // A message on its way to a rank. Its bytes are a copy, or still the sender's array.
  struct Message {
    Description description;
    std::vector<char> copy;
    const char* array = nullptr;  // null: `copy` has the bytes

    const char* bytes() const { return array != nullptr ? array : copy.data(); }
  };

  // Returns the number of the message among those of this pair, from 1.
  absl::StatusOr<uint64_t> Post(int sender, int receiver, Message message) {
    absl::MutexLock lock(&mutex_);
    if (!failure_.ok()) return failure_;
    Mailbox& mailbox = mailboxes_[{sender, receiver}];
    mailbox.messages.push_back(std::move(message));
    return ++mailbox.posted;
  }

  // Returns the next message. The caller reads it and calls Taken.
  absl::StatusOr<Message> Take(const Waiter& waiter, int sender) {
    absl::MutexLock lock(&mutex_);
    std::deque<Message>& messages = mailboxes_[{sender, waiter.rank}].messages;
    auto ready = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return !messages.empty() || !failure_.ok();
    };
    if (!mutex_.AwaitWithDeadline(absl::Condition(&ready), waiter.deadline)) {
      return waiter.late(absl::StrCat("rank ", sender));
    }
    // After a failure a sender may have given up its array.
    if (messages.empty() || (messages.front().array != nullptr && !failure_.ok())) return failure_;
    Message message = std::move(messages.front());
    messages.pop_front();
    ++inside_;
    return message;
  }

  void Taken(int sender, int receiver) {
    absl::MutexLock lock(&mutex_);
    ++mailboxes_[{sender, receiver}].taken;
    --inside_;
  }

  // Waits until the receiver has taken message `number`. A failure of the wait fails all ranks.
  absl::Status AwaitTaken(const Waiter& waiter, int receiver, uint64_t number) {
    absl::MutexLock lock(&mutex_);
    const Mailbox& mailbox = mailboxes_[{waiter.rank, receiver}];
    auto ready = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return mailbox.taken >= number || !failure_.ok();
    };
    if (!mutex_.AwaitWithDeadline(absl::Condition(&ready), waiter.deadline)) {
      const absl::Status late = waiter.late(absl::StrCat("rank ", receiver));
      Fail(waiter.rank, late);
      return late;
    }
    return mailbox.taken >= number ? absl::OkStatus() : failure_;
  }

  ThreadGroup::Sending sending() const { return sending_; }

  // Returns the room of a split. The first rank of a color that asks builds it.
  std::shared_ptr<Room> Child(int split, int color, int size) {
    absl::MutexLock lock(&mutex_);
    std::shared_ptr<Room>& child = children_[{split, color}];
    if (child == nullptr) child = std::make_shared<Room>(size, sending_);
    return child;
  }

 private:
  absl::Status Arrive(const Waiter& waiter) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const uint64_t arrival = ++arrivals_[waiter.rank];
    auto all_here = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      for (uint64_t other : arrivals_) {
        if (other < arrival) return false;
      }
      return true;
    };
    auto ready = [&]()
                     ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return all_here() || !failure_.ok(); };
    if (!mutex_.AwaitWithDeadline(absl::Condition(&ready), waiter.deadline)) {
      std::string missing;
      for (int r = 0; r < size_; ++r) {
        if (arrivals_[r] < arrival)
          absl::StrAppend(&missing, missing.empty() ? "rank " : ", rank ", r);
      }
      const absl::Status late = waiter.late(missing);
      Fail(waiter.rank, late);
      return late;
    }
    return all_here() ? absl::OkStatus() : failure_;
  }

  void Fail(int rank, const absl::Status& reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!failure_.ok()) return;
    failure_ = absl::Status(
        reason.code(), absl::StrCat("aborted by rank ", rank, ": ", std::string(reason.message())));
  }

  struct Mailbox {
    std::deque<Message> messages;
    uint64_t posted = 0, taken = 0;
  };

  const int size_;
  const ThreadGroup::Sending sending_;
  absl::Mutex mutex_;
  std::vector<uint64_t> arrivals_ ABSL_GUARDED_BY(mutex_);
  std::vector<const Collective*> operations_ ABSL_GUARDED_BY(mutex_);
  int inside_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  std::map<std::pair<int, int>, Mailbox> mailboxes_ ABSL_GUARDED_BY(mutex_);  // by sender, receiver
  std::map<std::pair<int, int>, std::shared_ptr<Room>> children_ ABSL_GUARDED_BY(mutex_);
};

std::vector<std::unique_ptr<ProcessGroup>> ThreadGroup::Create(int size, const std::string& name,
                                                               absl::Duration timeout,
                                                               Sending sending) {
  auto room = std::make_shared<Room>(size, sending);
  std::vector<std::unique_ptr<ProcessGroup>> groups;
  for (int rank = 0; rank < size; ++rank) {
    groups.emplace_back(new ThreadGroup(room, name, rank, size, timeout));
  }
  return groups;
}

ThreadGroup::ThreadGroup(std::shared_ptr<Room> room, std::string name, int rank, int size,
                         absl::Duration timeout)
    : QueuedGroup(std::move(name), rank, size, timeout), room_(std::move(room)) {
  Open();
}

ThreadGroup::~ThreadGroup() { Close(); }

void ThreadGroup::AbortPeers(const absl::Status& reason) { room_->Abort(rank(), reason); }

absl::Status ThreadGroup::Run(const Collective& collective, absl::Time deadline) {
  return IsPointToPoint(collective.description.kind) ? RunMessages(collective, deadline)
                                                     : RunTogether(collective, deadline);
}

absl::Status ThreadGroup::RunTogether(const Collective& mine, absl::Time deadline) {
  auto late = [this](const std::string& missing) { return TimeoutError(missing); };
  const Room::Waiter waiter{rank(), deadline, late};
  auto all = room_->Enter(waiter, &mine);
  absl::Status result = all.status();
  if (result.ok()) {
    for (int r = 0; r < size() && result.ok(); ++r) {
      result = CheckSame(rank(), mine.description, r, (*all)[r]->description);
    }
    if (result.ok()) result = RunPart(mine, *all);
    if (!result.ok()) room_->Abort(rank(), result);
    const absl::Status left = room_->Leave(waiter);
    if (result.ok()) result = left;
  }
  // The caller owns this rank's views and its operation again after the return.
  if (!result.ok()) room_->AwaitNobodyInside();
  return result;
}

absl::Status ThreadGroup::RunPart(const Collective& mine,
                                  const std::vector<const Collective*>& all) const {
  const Description& what = mine.description;
  switch (what.kind) {
    case CollectiveKind::ALL_REDUCE:
      AllReducePart(mine, all);
      break;
    case CollectiveKind::ALL_GATHER:
      for (int r = 0; r < size(); ++r) {
        Copy(At(mine.output, r * what.count), At(all[r]->input, 0), what.count, what.dtype);
      }
      break;
    case CollectiveKind::REDUCE_SCATTER: {
      auto source = [&](int r) -> const char* { return At(all[r]->input, rank() * what.count); };
      char* output = At(mine.output, 0);
      ReduceOverRanks(ReductionOf(what, size(), rank()), source, {&output, 1}, what.count);
      break;
    }
    case CollectiveKind::BROADCAST:
      if (rank() != what.root)
        Copy(At(mine.output, 0), At(all[what.root]->input, 0), what.count, what.dtype);
      break;
    case CollectiveKind::ALL_TO_ALL_V:
      return AllToAllVPart(mine, all);
    case CollectiveKind::SEND:
    case CollectiveKind::RECV:
    case CollectiveKind::SEND_RECV:
      break;
  }
  return absl::OkStatus();
}

// Chunk `rank` of every block belongs to this rank alone. The rank reads that chunk from all ranks
// and stores the sum to all.
void ThreadGroup::AllReducePart(const Collective& mine,
                                const std::vector<const Collective*>& all) const {
  const Description& what = mine.description;
  std::vector<char*> outputs(size());
  for (int64_t block = 0; block < NumBlocks(what.count, size()); ++block) {
    const Range chunk = ChunkRange(BlockRange(what.count, size(), block), size(), rank());
    auto source = [&](int r) -> const char* { return At(all[r]->output, chunk.begin); };
    for (int r = 0; r < size(); ++r) outputs[r] = At(all[r]->output, chunk.begin);
    ReduceOverRanks(ReductionOf(what, size(), rank()), source, outputs, chunk.size());
  }
}

absl::Status ThreadGroup::AllToAllVPart(const Collective& mine,
                                        const std::vector<const Collective*>& all) const {
  int64_t target = 0;
  for (int r = 0; r < size(); ++r) {
    const std::vector<int64_t>& sent = all[r]->send_counts;
    RETURN_IF_ERROR(CheckPairCount(r, sent[rank()], rank(), mine.recv_counts[r]));
    const int64_t source = std::accumulate(sent.begin(), sent.begin() + rank(), int64_t{0});
    Copy(At(mine.output, target), At(all[r]->input, source), sent[rank()], mine.description.dtype);
    target += sent[rank()];
  }
  return absl::OkStatus();
}

absl::Status ThreadGroup::RunMessages(const Collective& mine, absl::Time deadline) {
  const CollectiveKind kind = mine.description.kind;
  const Description sent = SendHalf(mine);
  const bool waits = Sends(kind) && room_->sending() == Sending::WAITS_FOR_RECV;
  uint64_t number = 0;
  if (Sends(kind)) {
    const char* begin = At(mine.input, 0);
    Room::Message message{sent, {}, waits ? begin : nullptr};
    if (!waits) message.copy.assign(begin, begin + mine.input.num_bytes());
    ASSIGN_OR_RETURN(number, room_->Post(rank(), sent.root, std::move(message)));
  }
  absl::Status result;
  if (Receives(kind)) result = ReceiveMessage(mine, deadline);
  if (!waits) return result;
  auto late = [this](const std::string& missing) { return TimeoutError(missing); };
  if (result.ok())
    result = room_->AwaitTaken({rank(), deadline, late}, sent.root, number);
  else
    room_->Abort(rank(), result);
  // The caller owns the array again after the return.
  if (!result.ok()) room_->AwaitNobodyInside();
  return result;
}

absl::Status ThreadGroup::ReceiveMessage(const Collective& mine, absl::Time deadline) {
  const Description received = RecvHalf(mine);
  const int sender = received.root;
  auto late = [this](const std::string& missing) { return TimeoutError(missing); };
  ASSIGN_OR_RETURN(const Room::Message message, room_->Take({rank(), deadline, late}, sender));
  const absl::Status same = CheckMessage(rank(), received, sender, message.description);
  if (same.ok()) Copy(At(mine.output, 0), message.bytes(), received.count, received.dtype);
  room_->Taken(sender, rank());
  return same;
}

absl::StatusOr<std::unique_ptr<QueuedGroup>> ThreadGroup::SplitOff(int color, int key,
                                                                   const std::string& name,
                                                                   absl::Time deadline) {
  ASSIGN_OR_RETURN(const SplitPlan plan, PlanSplit(*this, color, key, deadline));
  auto room = room_->Child(num_splits_++, color, plan.size);
  return std::unique_ptr<QueuedGroup>(
      new ThreadGroup(std::move(room), name, plan.rank, plan.size, timeout()));
}

absl::StatusOr<std::shared_ptr<Buffer>> ThreadGroup::Allocate(size_t num_bytes) {
  RETURN_IF_ERROR(status());
  return Buffer::Allocate(num_bytes);
}

}  // namespace tandem::comm
