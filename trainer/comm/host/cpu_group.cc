#include "trainer/comm/host/cpu_group.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "trainer/comm/combine.h"
#include "trainer/comm/host/shared_rendezvous.h"
#include "trainer/comm/ring_order.h"
#include "trainer/comm/split_plan.h"

namespace tandem::comm {

namespace {

using Post = SharedBoard::Post;

// Up to this many bytes read per rank, copying everything once beats the ring's hops.
constexpr int64_t kOneShotBytes = 256 << 10;

char* At(const ArrayView& view, int64_t element) {
  return static_cast<char*>(view.data) + element * static_cast<int64_t>(SizeOf(view.dtype));
}

// Handles empty arrays, which may have no address.
void Copy(char* target, const char* source, int64_t num_bytes) {
  if (num_bytes > 0) std::memcpy(target, source, static_cast<size_t>(num_bytes));
}

RankReduction ReductionOf(const Description& description, int size, int chunk) {
  return {description.dtype, description.op, description.order, size, chunk};
}

int64_t ElementBytes(const Collective& collective) {
  return static_cast<int64_t>(SizeOf(collective.description.dtype));
}

SharedRendezvous RendezvousOf(const CpuGroupOptions& options, std::string key) {
  return {options.store, options.token, std::move(key), options.rank, options.size};
}

}  // namespace

struct CpuGroup::Segment {
  std::unique_ptr<rpc::SharedMemory> memory;
  char* mine = nullptr;  // this rank's buffer inside `memory`
  size_t num_bytes = 0;  // size of that buffer
};

absl::StatusOr<std::unique_ptr<QueuedGroup>> CpuGroup::Create(const CpuGroupOptions& options,
                                                              absl::Time deadline,
                                                              const std::string& name) {
  std::unique_ptr<SharedBoard> board;
  if (options.size > 1) {
    // Page by page, because a group that only votes uses few of its pages.
    ASSIGN_OR_RETURN(auto memory, MapTogether(RendezvousOf(options, options.name),
                                              SharedBoard::NumBytes(options.size),
                                              rpc::SharedMemory::Pages::WHEN_TOUCHED, deadline));
    board =
        std::make_unique<SharedBoard>(std::move(memory), options.rank, options.size, options.names);
  }
  return std::unique_ptr<QueuedGroup>(
      new CpuGroup(options, name.empty() ? options.name : name, std::move(board)));
}

CpuGroup::CpuGroup(const CpuGroupOptions& options, std::string name,
                   std::unique_ptr<SharedBoard> board)
    : QueuedGroup(std::move(name), options.rank, options.size, options.timeout),
      options_(options),
      board_(std::move(board)) {
  Open();
}

CpuGroup::~CpuGroup() { Close(); }

void CpuGroup::AbortPeers(const absl::Status& reason) {
  if (board_ != nullptr) board_->Abort(reason);
}

absl::Status CpuGroup::Run(const Collective& collective, absl::Time deadline) {
  auto late = [this](const std::string& missing) { return TimeoutError(missing); };
  const Waiter waiter{deadline, late};
  switch (collective.description.kind) {
    case CollectiveKind::ALL_REDUCE:
      return RunAllReduce(collective, waiter);
    case CollectiveKind::ALL_GATHER:
      return RunAllGather(collective, waiter);
    case CollectiveKind::REDUCE_SCATTER:
      return RunReduceScatter(collective, waiter);
    case CollectiveKind::BROADCAST:
      return RunBroadcast(collective, waiter);
    case CollectiveKind::ALL_TO_ALL_V:
      return RunAllToAllV(collective, waiter);
    case CollectiveKind::SEND:
    case CollectiveKind::RECV:
    case CollectiveKind::SEND_RECV:
      return RunMessages(collective, waiter);
  }
  return absl::OkStatus();
}

absl::Status CpuGroup::EnterTogether(const Post& post, const Waiter& waiter) {
  RETURN_IF_ERROR(board_->Enter(post, waiter));
  for (int r = 0; r < size(); ++r) {
    RETURN_IF_ERROR(CheckSame(rank(), post.description, r, board_->post(r).description));
  }
  return absl::OkStatus();
}

absl::Status CpuGroup::RunAllReduce(const Collective& mine, const Waiter& waiter) {
  const int64_t num_bytes = mine.description.count * ElementBytes(mine);
  if (num_bytes * size() <= kOneShotBytes) return OneShotAllReduce(mine, waiter);
  const Post post = PostFor(mine);
  RETURN_IF_ERROR(EnterTogether(post, waiter));
  bool zero_copy = post.segment >= 0;
  for (int r = 0; r < size(); ++r) zero_copy = zero_copy && board_->post(r).segment == post.segment;
  if (zero_copy) return ZeroCopyAllReduce(mine, waiter);
  // A ring would round bf16 at every hop.
  const bool phased =
      mine.description.order == SumOrder::TREE || mine.description.dtype == DType::BF16;
  return phased ? PhasedAllReduce(mine, waiter) : RingAllReduce(mine, waiter);
}

absl::Status CpuGroup::OneShotAllReduce(const Collective& mine, const Waiter& waiter) {
  const Description& what = mine.description;
  Copy(board_->next_slot(), At(mine.input, 0), what.count * ElementBytes(mine));
  RETURN_IF_ERROR(EnterTogether({what}, waiter));
  CountBothWays((size() - 1) * what.count * ElementBytes(mine));
  for (int64_t block = 0; block < NumBlocks(what.count, size()); ++block) {
    for (int c = 0; c < size(); ++c) {
      const Range chunk = ChunkRange(BlockRange(what.count, size(), block), size(), c);
      auto source = [&](int r) { return board_->slot(r) + chunk.begin * ElementBytes(mine); };
      char* output = At(mine.output, chunk.begin);
      ReduceOverRanks(ReductionOf(what, size(), c), source, {&output, 1}, chunk.size());
    }
  }
  return absl::OkStatus();
}

// Processes two blocks at a time, so that a rank has work while a neighbour catches up.
absl::Status CpuGroup::RingAllReduce(const Collective& mine, const Waiter& waiter) {
  const int64_t num_blocks = NumBlocks(mine.description.count, size());
  for (int64_t first = 0; first < num_blocks; first += 2) {
    for (int step = 0; step <= 2 * (size() - 1); ++step) {
      for (int64_t block = first; block < std::min(first + 2, num_blocks); ++block) {
        RETURN_IF_ERROR(RingStep(mine, block, step, waiter));
      }
    }
  }
  return absl::OkStatus();
}

// In step s a rank takes the chunk that its left neighbour sent in step s - 1, and passes it on.
// The first size - 1 steps are a reduce-scatter (partial sums travel). The next size - 1 steps are
// an all-gather (whole sums travel).
absl::Status CpuGroup::RingStep(const Collective& mine, int64_t block, int step,
                                const Waiter& waiter) {
  const int last_sum = size() - 1, last = 2 * (size() - 1);
  const bool receives = step > 0, sends = step < last;
  const int chunk_rank = step < last_sum ? rank() - 1 - step : rank() - (step - last_sum);
  const Range chunk = ChunkRange(BlockRange(mine.description.count, size(), block), size(),
                                 (chunk_rank + 2 * size()) % size());
  char* own = At(mine.output, chunk.begin);
  const int64_t num_bytes = chunk.size() * ElementBytes(mine);
  RETURN_IF_ERROR(board_->AwaitRing(receives, sends, waiter));
  if (step == 0) {
    Copy(board_->ring_outbox(), own, num_bytes);
  } else if (step < last_sum) {
    Combine(mine.description.dtype, mine.description.op, board_->ring_outbox(),
            board_->ring_inbox(), own, chunk.size());
  } else {
    if (step == last_sum) {
      Combine(mine.description.dtype, mine.description.op, own, board_->ring_inbox(), own,
              chunk.size());
    } else {
      Copy(own, board_->ring_inbox(), num_bytes);
    }
    if (sends) Copy(board_->ring_outbox(), own, num_bytes);
  }
  board_->AdvanceRing(receives, sends);
  const auto moved = static_cast<uint64_t>(num_bytes);
  CountTraffic({sends ? moved : 0, receives ? moved : 0});
  return absl::OkStatus();
}

// For orders that a ring cannot sum in: all ranks show a piece, each reduces its share, and all
// collect the shares.
absl::Status CpuGroup::PhasedAllReduce(const Collective& mine, const Waiter& waiter) {
  const Description& what = mine.description;
  const int64_t element = ElementBytes(mine), piece = SharedBoard::kPhaseSlotBytes / element;
  for (int64_t begin = 0; begin < what.count; begin += piece) {
    const Range range{begin, std::min(what.count, begin + piece)};
    Copy(board_->next_slot(), At(mine.input, begin), range.size() * element);
    RETURN_IF_ERROR(EnterTogether({what}, waiter));
    const Range share = ChunkRange(range, size(), rank());
    CountBothWays(((size() - 2) * share.size() + range.size()) * element);
    auto source = [&](int r) { return board_->slot(r) + (share.begin - begin) * element; };
    char* outputs[] = {board_->next_slot() + (share.begin - begin) * element,
                       At(mine.output, share.begin)};
    ReduceOverRanks(ReductionOf(what, size(), rank()), source, outputs, share.size());
    RETURN_IF_ERROR(EnterTogether({what}, waiter));
    for (int i = 1; i < size(); ++i) {
      const int r = (rank() + i) % size();
      const Range theirs = ChunkRange(range, size(), r);
      Copy(At(mine.output, theirs.begin), board_->slot(r) + (theirs.begin - begin) * element,
           theirs.size() * element);
    }
  }
  return absl::OkStatus();
}

// All arrays lie in one segment. Each rank reduces its chunks in place and stores them to all
// ranks.
absl::Status CpuGroup::ZeroCopyAllReduce(const Collective& mine, const Waiter& waiter) {
  const Description& what = mine.description;
  std::shared_ptr<Segment> segment;
  {
    absl::MutexLock lock(&segments_mutex_);
    segment = segments_[board_->post(rank()).segment].lock();
  }
  TANDEM_CHECK(segment != nullptr) << "a buffer was dropped while a collective used it";
  std::vector<char*> arrays(size()), outputs(size());
  for (int r = 0; r < size(); ++r) arrays[r] = segment->memory->data() + board_->post(r).offset;
  for (int64_t block = 0; block < NumBlocks(what.count, size()); ++block) {
    const Range whole = BlockRange(what.count, size(), block),
                chunk = ChunkRange(whole, size(), rank());
    const int64_t offset = chunk.begin * ElementBytes(mine);
    CountBothWays(((size() - 2) * chunk.size() + whole.size()) * ElementBytes(mine));
    for (int r = 0; r < size(); ++r) outputs[r] = arrays[r] + offset;
    ReduceOverRanks(
        ReductionOf(what, size(), rank()), [&](int r) { return arrays[r] + offset; }, outputs,
        chunk.size());
  }
  return EnterTogether({what}, waiter);
}

absl::Status CpuGroup::RunAllGather(const Collective& mine, const Waiter& waiter) {
  const int64_t share = mine.description.count * ElementBytes(mine);
  int64_t begin = 0;
  do {
    const int64_t piece = std::min(SharedBoard::kPhaseSlotBytes, share - begin);
    Copy(board_->next_slot(), At(mine.input, 0) + begin, piece);
    RETURN_IF_ERROR(EnterTogether({mine.description}, waiter));
    CountBothWays((size() - 1) * piece);
    for (int r = 0; r < size(); ++r)
      Copy(At(mine.output, 0) + r * share + begin, board_->slot(r), piece);
    begin += piece;
  } while (begin < share);
  return absl::OkStatus();
}

absl::Status CpuGroup::RunReduceScatter(const Collective& mine, const Waiter& waiter) {
  const Description& what = mine.description;
  const int64_t element = ElementBytes(mine),
                piece = SharedBoard::kPhaseSlotBytes / size() / 64 * 64 / element;
  int64_t begin = 0;
  do {
    const int64_t n = std::min(piece, what.count - begin);
    for (int r = 0; r < size(); ++r) {
      Copy(board_->next_slot() + r * piece * element, At(mine.input, r * what.count + begin),
           n * element);
    }
    RETURN_IF_ERROR(EnterTogether({what}, waiter));
    CountBothWays((size() - 1) * n * element);
    auto source = [&](int r) { return board_->slot(r) + rank() * piece * element; };
    char* output = At(mine.output, begin);
    ReduceOverRanks(ReductionOf(what, size(), rank()), source, {&output, 1}, n);
    begin += n;
  } while (begin < what.count);
  return absl::OkStatus();
}

absl::Status CpuGroup::RunBroadcast(const Collective& mine, const Waiter& waiter) {
  const int root = mine.description.root;
  const int64_t num_bytes = mine.description.count * ElementBytes(mine);
  int64_t begin = 0;
  do {
    const int64_t piece = std::min(SharedBoard::kPhaseSlotBytes, num_bytes - begin);
    if (rank() == root) Copy(board_->next_slot(), At(mine.input, 0) + begin, piece);
    RETURN_IF_ERROR(EnterTogether({mine.description}, waiter));
    if (rank() != root) Copy(At(mine.output, 0) + begin, board_->slot(root), piece);
    const auto moved = static_cast<uint64_t>(piece);
    CountTraffic(rank() == root ? rpc::Traffic{moved * static_cast<uint64_t>(size() - 1), 0}
                                : rpc::Traffic{0, moved});
    begin += piece;
  } while (begin < num_bytes);
  return absl::OkStatus();
}

// The first phase shows the counts. The largest message of all decides the number of the following
// phases; each has one equal cell per receiver.
absl::Status CpuGroup::RunAllToAllV(const Collective& mine, const Waiter& waiter) {
  const int64_t element = ElementBytes(mine),
                cell = SharedBoard::kPhaseSlotBytes / size() / 64 * 64;
  const size_t counts_bytes = static_cast<size_t>(size()) * sizeof(int64_t);
  std::memcpy(board_->next_slot(), mine.send_counts.data(), counts_bytes);
  Post post{mine.description};
  for (int64_t count : mine.send_counts)
    post.rounds = std::max(post.rounds, (count * element + cell - 1) / cell);
  RETURN_IF_ERROR(EnterTogether(post, waiter));
  int64_t rounds = 0;
  for (int r = 0; r < size(); ++r) {
    int64_t sent = 0;
    std::memcpy(&sent, board_->slot(r) + static_cast<size_t>(rank()) * sizeof(int64_t),
                sizeof(sent));
    RETURN_IF_ERROR(CheckPairCount(r, sent, rank(), mine.recv_counts[r]));
    rounds = std::max(rounds, board_->post(r).rounds);
  }
  // The bytes of a message of `count` elements in this round, which begins at byte `at`.
  auto piece = [&](int64_t count, int64_t at) { return std::min(cell, count * element - at); };
  for (int64_t round = 0; round < rounds; ++round) {
    const int64_t at = round * cell;
    const char* source = At(mine.input, 0);
    for (int r = 0; r < size(); ++r) {
      const int64_t n = piece(mine.send_counts[r], at);
      if (n > 0) Copy(board_->next_slot() + r * cell, source + at, n);
      if (n > 0 && r != rank()) CountTraffic({static_cast<uint64_t>(n), 0});
      source += mine.send_counts[r] * element;
    }
    RETURN_IF_ERROR(EnterTogether(post, waiter));
    char* target = At(mine.output, 0);
    for (int r = 0; r < size(); ++r) {
      const int64_t n = piece(mine.recv_counts[r], at);
      if (n > 0) Copy(target + at, board_->slot(r) + rank() * cell, n);
      if (n > 0 && r != rank()) CountTraffic({0, static_cast<uint64_t>(n)});
      target += mine.recv_counts[r] * element;
    }
  }
  return absl::OkStatus();
}

// Sends and receives in turn. So in a ring of exchanges the rank that has sent most finds room:
// its neighbour has received all but a channel's length of that.
absl::Status CpuGroup::RunMessages(const Collective& mine, const Waiter& waiter) {
  const Description sent = SendHalf(mine), received = RecvHalf(mine);
  const auto to_send = static_cast<int64_t>(mine.input.num_bytes()),
             to_receive = static_cast<int64_t>(mine.output.num_bytes());
  int64_t num_sent = 0, num_received = 0;
  bool sending = Sends(mine.description.kind), receiving = Receives(mine.description.kind);
  while (sending || receiving) {
    if (sending) {
      SharedBoard::Fragment* fragment = nullptr;
      RETURN_IF_ERROR(board_->AwaitRoomTowards(sent.root, waiter, &fragment));
      fragment->description = sent;
      fragment->num_bytes = std::min(SharedBoard::kFragmentBytes, to_send - num_sent);
      Copy(fragment->bytes, At(mine.input, 0) + num_sent, fragment->num_bytes);
      num_sent += fragment->num_bytes;
      board_->AdvanceSend(sent.root);
      sending = num_sent < to_send;
    }
    if (receiving) {
      const SharedBoard::Fragment* fragment = nullptr;
      RETURN_IF_ERROR(board_->AwaitFragmentFrom(received.root, waiter, &fragment));
      RETURN_IF_ERROR(CheckMessage(rank(), received, received.root, fragment->description));
      Copy(At(mine.output, 0) + num_received, fragment->bytes, fragment->num_bytes);
      num_received += fragment->num_bytes;
      board_->AdvanceReceive(received.root);
      receiving = num_received < to_receive;
    }
  }
  CountTraffic({static_cast<uint64_t>(num_sent), static_cast<uint64_t>(num_received)});
  return absl::OkStatus();
}

Post CpuGroup::PostFor(const Collective& mine) const {
  Post post{mine.description};
  const char* begin = At(mine.output, 0);
  const char* end = begin + mine.output.num_bytes();
  absl::MutexLock lock(&segments_mutex_);
  for (size_t i = 0; i < segments_.size(); ++i) {
    const std::shared_ptr<Segment> segment = segments_[i].lock();
    if (segment == nullptr || begin < segment->mine || end > segment->mine + segment->num_bytes)
      continue;
    post.segment = static_cast<int64_t>(i);
    post.offset = begin - segment->memory->data();
  }
  return post;
}

absl::StatusOr<std::unique_ptr<QueuedGroup>> CpuGroup::SplitOff(int color, int key,
                                                                const std::string& name,
                                                                absl::Time deadline) {
  ASSIGN_OR_RETURN(const SplitPlan plan, PlanSplit(*this, color, key, deadline));
  CpuGroupOptions options = options_;
  options.name = absl::StrCat(options_.name, "/split", num_splits_++, ".", color);
  options.rank = plan.rank;
  options.size = plan.size;
  options.names = NamesOf(options_.names, plan.members);
  return Create(options, deadline, name);
}

absl::StatusOr<std::shared_ptr<Buffer>> CpuGroup::Allocate(size_t num_bytes) {
  RETURN_IF_ERROR(status());
  if (size() == 1) return Buffer::Allocate(num_bytes);
  size_t number;
  {
    absl::MutexLock lock(&segments_mutex_);
    number = segments_.size();
    // Even if the code below fails, because ranks must number their segments alike.
    segments_.emplace_back();
  }
  const size_t stride = (num_bytes + 4095) / 4096 * 4096 + 4096;  // whole pages, and never empty
  const std::string key = absl::StrCat(options_.name, "/buffer", number);
  auto memory = MapTogether(RendezvousOf(options_, key), stride * static_cast<size_t>(size()),
                            rpc::SharedMemory::Pages::AT_ONCE, absl::Now() + timeout());
  if (absl::IsResourceExhausted(memory.status())) {
    private_bytes_ += num_bytes;
    return Buffer::Allocate(num_bytes);
  }
  RETURN_IF_ERROR(memory.status());
  auto segment = std::make_shared<Segment>();
  segment->memory = *std::move(memory);
  segment->mine = segment->memory->data() + stride * static_cast<size_t>(rank());
  segment->num_bytes = num_bytes;
  {
    absl::MutexLock lock(&segments_mutex_);
    segments_[number] = segment;
  }
  return Buffer::Adopt(segment->mine, num_bytes, [segment] {});
}

}  // namespace tandem::comm
