#include "trainer/comm/net/two_levels.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <utility>

#include "absl/time/clock.h"
#include "kernels/base/status_macros.h"

namespace tandem::comm {

namespace {

// Below this many bytes over all ranks, one round between all ranks beats three in turn.
constexpr int64_t kOneRoundBytes = 256 << 10;
// A rank's part of a piece. Large enough that the pause between two pieces is short beside them.
constexpr int64_t kShareBytes = 2 << 20;
// The groups of a level wait longer than the collective. A rank that one of them misses may itself
// wait for a third, so only all ranks together know who is missing.
constexpr absl::Duration kLonger = absl::Seconds(60);
// How often a waiting rank asks what peers said.
constexpr absl::Duration kListen = absl::Milliseconds(50);

bool IsPowerOfTwo(int n) { return n > 0 && (n & (n - 1)) == 0; }

}  // namespace

std::optional<HostGrid> GridOf(const std::vector<int>& memory) {
  const auto size = static_cast<int>(memory.size());
  const auto per_host = static_cast<int>(std::count(memory.begin(), memory.end(), memory.front()));
  if (per_host == 1 || per_host == size || size % per_host != 0) return std::nullopt;
  for (int r = 0; r < size; ++r) {
    const int first = r / per_host * per_host;
    if (memory[r] != memory[first] || (r == first && r > 0 && memory[r] == memory[r - 1]))
      return std::nullopt;
  }
  const HostGrid grid{size / per_host, per_host};
  return IsPowerOfTwo(grid.hosts) ? std::optional<HostGrid>(grid) : std::nullopt;
}

// The stages of a piece of an array.
struct TwoLevels::Stages {
  std::function<absl::Status(int64_t piece)> before;         // within the host
  std::function<std::optional<Work>(int64_t piece)> across;  // between hosts
  std::function<absl::Status(int64_t piece)> after;          // within the host
};

// One collective: its arrays in elements and in pieces of each rank's share.
struct TwoLevels::Call {
  const Collective& mine;
  CollectiveArgs args;
  int64_t piece;  // elements of one rank's share

  int64_t count() const { return mine.description.count; }
  int64_t element() const { return static_cast<int64_t>(SizeOf(mine.description.dtype)); }
  static int64_t PiecesOf(int64_t count, int64_t piece) { return (count + piece - 1) / piece; }
  ArrayView Part(const ArrayView& view, int64_t begin, int64_t size) const {
    return ArrayView(static_cast<char*>(view.data) + begin * element(), view.dtype, Shape{size});
  }
  void Copy(const ArrayView& to, const ArrayView& from) const {
    std::memcpy(to.data, from.data, from.num_bytes());
  }
};

namespace {

// Memory for `count` elements, made once and cut as needed.
class Scratch {
 public:
  Scratch(int64_t count, DType dtype)
      : bytes_(static_cast<size_t>(count) * SizeOf(dtype)), dtype_(dtype) {}
  ArrayView First(int64_t count) { return ArrayView(bytes_.data(), dtype_, Shape{count}); }

 private:
  std::vector<char> bytes_;
  const DType dtype_;
};

}  // namespace

TwoLevels::TwoLevels(std::unique_ptr<ProcessGroup> within, std::unique_ptr<ProcessGroup> across,
                     Watch watch)
    : within_(std::move(within)), across_(std::move(across)), watch_(std::move(watch)) {}

bool TwoLevels::Serve(const Collective& collective) const {
  const Description& what = collective.description;
  const bool reduces =
      what.kind == CollectiveKind::ALL_REDUCE || what.kind == CollectiveKind::REDUCE_SCATTER;
  if (IsPointToPoint(what.kind) || what.kind == CollectiveKind::ALL_TO_ALL_V) return false;
  if (reduces && what.op == ReduceOp::SUM && what.dtype == DType::BF16) return false;
  const int64_t ranks = within_->size() * across_->size();
  return what.count * static_cast<int64_t>(SizeOf(what.dtype)) * ranks > kOneRoundBytes;
}

absl::Status TwoLevels::Run(const Collective& mine, absl::Time deadline) {
  const Description& what = mine.description;
  deadline_ = deadline;
  const Call call{mine,
                  {.op = what.op,
                   .order = SumOrder::TREE,
                   .tag = what.tag,
                   .timeout = std::max(deadline - absl::Now(), absl::ZeroDuration()) + kLonger},
                  kShareBytes / static_cast<int64_t>(SizeOf(what.dtype))};
  switch (what.kind) {
    case CollectiveKind::ALL_REDUCE:
      return AllReduce(call);
    case CollectiveKind::ALL_GATHER:
      return AllGather(call);
    case CollectiveKind::REDUCE_SCATTER:
      return ReduceScatter(call);
    case CollectiveKind::BROADCAST:
      return Broadcast(call);
    case CollectiveKind::ALL_TO_ALL_V:
    case CollectiveKind::SEND:
    case CollectiveKind::RECV:
    case CollectiveKind::SEND_RECV:
      break;
  }
  return absl::InternalError("no collective of two levels");
}

void TwoLevels::Abort(const absl::Status& reason) {
  within_->Abort(reason);
  across_->Abort(reason);
}

absl::Status TwoLevels::Await(const Work& work) {
  absl::Status ended;
  while (ended.ok()) {
    work.Wait(std::min(absl::Now() + kListen, deadline_)).IgnoreError();
    if (work.done()) return work.Wait(absl::InfiniteFuture());
    ended = watch_.said();
    if (ended.ok() && absl::Now() >= deadline_) ended = watch_.late();
  }
  Abort(ended);
  work.Wait(absl::InfiniteFuture()).IgnoreError();  // ends soon
  return ended;
}

absl::Status TwoLevels::RunStages(int64_t num_pieces, const Stages& stages) {
  std::deque<std::optional<Work>> under_way;
  const auto run = [&]() -> absl::Status {
    for (int64_t p = 0; p <= num_pieces; ++p) {
      if (p < num_pieces) {
        if (stages.before) RETURN_IF_ERROR(stages.before(p));
        under_way.push_back(stages.across(p));
      }
      if (p == 0) continue;
      if (under_way.front()) RETURN_IF_ERROR(Await(*under_way.front()));
      under_way.pop_front();
      if (stages.after) RETURN_IF_ERROR(stages.after(p - 1));
    }
    return absl::OkStatus();
  };
  absl::Status status = run();
  if (status.ok()) return status;
  Abort(status);
  // The arrays are the caller's again after the return.
  for (const std::optional<Work>& work : under_way) {
    if (work) work->Wait(absl::InfiniteFuture()).IgnoreError();
  }
  return status;
}

// A piece is reduced to one share a rank, in place. The few elements that make no whole share are
// reduced as they are.
absl::Status TwoLevels::AllReduce(const Call& call) {
  const int64_t ranks = within_->size(), place = within_->rank();
  const int64_t whole = call.count() / ranks * ranks, step = call.piece * ranks;
  const ArrayView& array = call.mine.output;
  const auto piece = [&](int64_t p) {
    return call.Part(array, p * step, std::min(step, whole - p * step));
  };
  const auto share = [&](int64_t p) {
    const int64_t size = piece(p).num_elements() / ranks;
    return call.Part(piece(p), place * size, size);
  };
  RETURN_IF_ERROR(RunStages(
      Call::PiecesOf(whole, step),
      {[&](int64_t p) { return Await(within_->ReduceScatter(share(p), piece(p), call.args)); },
       [&](int64_t p) { return across_->AllReduce(share(p), call.args); },
       [&](int64_t p) { return Await(within_->AllGather(piece(p), share(p), call.args)); }}));
  const ArrayView rest = call.Part(array, whole, call.count() - whole);
  if (rest.num_elements() == 0) return absl::OkStatus();
  return RunStages(1, {[&](int64_t) { return Await(within_->AllReduce(rest, call.args)); },
                       [&](int64_t) { return across_->AllReduce(rest, call.args); }, nullptr});
}

// The ranks of a place gather their shares of a piece. Then a host's ranks exchange, host by host,
// what they gathered.
absl::Status TwoLevels::AllGather(const Call& call) {
  const int64_t hosts = across_->size(), ranks = within_->size();
  const int64_t step = std::min(call.piece, call.count());
  const DType dtype = call.mine.description.dtype;
  Scratch gathered[] = {{hosts * step, dtype}, {hosts * step, dtype}};
  Scratch of_host(ranks * step, dtype);
  const auto size = [&](int64_t p) { return std::min(step, call.count() - p * step); };
  const auto exchange = [&](int64_t p) -> absl::Status {
    const int64_t n = size(p);
    for (int64_t host = 0; host < hosts; ++host) {
      const ArrayView mine = call.Part(gathered[p % 2].First(hosts * n), host * n, n);
      const ArrayView all = of_host.First(ranks * n);
      RETURN_IF_ERROR(Await(within_->AllGather(all, mine, call.args)));
      for (int64_t r = 0; r < ranks; ++r) {
        const int64_t begin = (host * ranks + r) * call.count() + p * step;
        call.Copy(call.Part(call.mine.output, begin, n), call.Part(all, r * n, n));
      }
    }
    return absl::OkStatus();
  };
  return RunStages(Call::PiecesOf(call.count(), step),
                   {nullptr,
                    [&](int64_t p) {
                      return across_->AllGather(gathered[p % 2].First(hosts * size(p)),
                                                call.Part(call.mine.input, p * step, size(p)),
                                                call.args);
                    },
                    exchange});
}

// A host's ranks sum what belongs to each host, so that a rank has one part for its counterpart on
// every host.
absl::Status TwoLevels::ReduceScatter(const Call& call) {
  const int64_t hosts = across_->size(), ranks = within_->size();
  const int64_t step = std::min(call.piece, call.count());
  const DType dtype = call.mine.description.dtype;
  Scratch sums[] = {{hosts * step, dtype}, {hosts * step, dtype}};
  Scratch for_host(ranks * step, dtype);
  const auto size = [&](int64_t p) { return std::min(step, call.count() - p * step); };
  const auto sum = [&](int64_t p) -> absl::Status {
    const int64_t n = size(p);
    for (int64_t host = 0; host < hosts; ++host) {
      const ArrayView all = for_host.First(ranks * n);
      for (int64_t r = 0; r < ranks; ++r) {
        const int64_t begin = (host * ranks + r) * call.count() + p * step;
        call.Copy(call.Part(all, r * n, n), call.Part(call.mine.input, begin, n));
      }
      const ArrayView mine = call.Part(sums[p % 2].First(hosts * n), host * n, n);
      RETURN_IF_ERROR(Await(within_->ReduceScatter(mine, all, call.args)));
    }
    return absl::OkStatus();
  };
  return RunStages(Call::PiecesOf(call.count(), step),
                   {sum,
                    [&](int64_t p) {
                      return across_->ReduceScatter(call.Part(call.mine.output, p * step, size(p)),
                                                    sums[p % 2].First(hosts * size(p)), call.args);
                    },
                    nullptr});
}

// From the root to its counterparts, and from them to the ranks of their hosts.
absl::Status TwoLevels::Broadcast(const Call& call) {
  const int ranks = within_->size(), root = call.mine.description.root;
  const int place = root % ranks, host = root / ranks;
  const auto piece = [&](int64_t p) {
    const int64_t begin = p * call.piece;
    return call.Part(call.mine.output, begin, std::min(call.piece, call.count() - begin));
  };
  return RunStages(
      Call::PiecesOf(call.count(), call.piece),
      {nullptr,
       [&](int64_t p) -> std::optional<Work> {
         if (within_->rank() != place) return std::nullopt;
         return across_->Broadcast(piece(p), host, call.args);
       },
       [&](int64_t p) { return Await(within_->Broadcast(piece(p), place, call.args)); }});
}

}  // namespace tandem::comm
