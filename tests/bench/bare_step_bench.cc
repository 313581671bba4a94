// What a step of `tandem bench pull-push --path shm` takes at least on a machine: the same two clients, ids, rows and bytes through shared
// memory, without messages, checks, versions, exactly-once or deadlines for each call. Clients merge repeated ids, copy pulled rows out of a
// ring, and write gradients where the server reads them; the server's thread for each client looks ids up and copies rows, and either
// subtracts gradients as they come (one lock for some rows) or, as in BSP, adds up those of both clients at the step's end, half of the
// rows on each thread. At the end every row is compared with what the steps add up to.
// Usage: tandem_bare_step_bench [STEPS]
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/base/check.h"
#include "kernels/base/clock.h"
#include "kernels/base/random.h"
#include "kernels/cpu/vector/vectorise.h"
#include "rpc/shared/memory.h"
#include "tests/bench/bare_rows.h"

namespace tandem::bare {
namespace {

constexpr int kClients = 2;
constexpr size_t kIdsPerStep = 4096 * 26, kBlock = 4096, kSlots = 4;  // ids; rows of a block, blocks of the ring
constexpr uint64_t kBatches = 8;
constexpr int kWarmUp = 5;
constexpr absl::Duration kPatience = absl::Seconds(60);

// Counts up; others wait until it has come as far.
class Count {
 public:
  void Raise() {
    value_.fetch_add(1);
    if (sleepers_.load() > 0) rpc::FutexWakeAll(value_);
  }
  void Await(uint32_t wanted) {
    for (int look = 0; look < kLooks; ++look) {
      if (value_.load(std::memory_order_acquire) >= wanted) return;
    }
    ++sleepers_;
    const absl::Time deadline = absl::Now() + kPatience;
    for (uint32_t value; (value = value_.load()) < wanted;) {
      TANDEM_CHECK(absl::Now() < deadline) << "another process has ended or hangs";
      rpc::FutexWait(value_, value, kPatience);
    }
    --sleepers_;
  }

 private:
  static constexpr int kLooks = 50;
  alignas(kCacheLine) std::atomic<uint32_t> value_{0};
  std::atomic<uint32_t> sleepers_{0};
};

// Between a client and its thread of the server.
struct Shared {
  Count asked, pulled, copied, pushed, subtracted, done;
  size_t count = 0;  // of ids
  uint64_t ids[kIdsPerStep];
  alignas(kCacheLine) float rows[kSlots * kBlock * kDim];
  alignas(kCacheLine) float gradients[kIdsPerStep * kDim];  // a ring too, or, if they stay there until the step's end, one after the other
};
struct Job {
  Shared of_client[kClients];
  Count ready;
  double seconds[kClients] = {};
};

uint64_t IdAt(int client, uint64_t step, size_t place) {
  return 1 + RandomBelow({2, static_cast<uint64_t>(client)}, step % kBatches, place, kNumRows);
}

// second: null, or what is added to the first. Decided once for a row: g++ makes of a choice inside the loop loads under a mask, and AMD's
// processors take a microsecond for those of a null pointer that the mask leaves out.
inline void SubtractFrom(float* row, const float* first, const float* second) {
  if (second == nullptr) {
    for (size_t i = 0; i < kDim; ++i) row[i] -= first[i];
  } else {
    for (size_t i = 0; i < kDim; ++i) row[i] -= first[i] + second[i];
  }
}

class Server {
 public:
  Server(Job* job, bool at_step_end) : job_(*job), at_step_end_(at_step_end) {
    for (int client = 0; client < kClients; ++client) {
      numbers_[client].resize(kIdsPerStep);
      place_of_[client].resize(kNumRows);
    }
  }

  void Run(uint32_t steps) {
    std::vector<std::thread> threads;
    for (int client = 0; client < kClients; ++client) threads.emplace_back([=, this] { Serve(client, steps); });
    job_.ready.Raise();
    for (std::thread& thread : threads) thread.join();
    Compare(steps);
  }

 private:
  void Serve(int client, uint32_t steps) {
    Shared& its = job_.of_client[client];
    uint32_t pulled = 0, pushed = 0;
    for (uint32_t step = 1; step <= steps; ++step) {
      its.asked.Await(step);
      for (size_t begin = 0; begin < its.count; begin += kBlock, ++pulled) {
        if (pulled >= kSlots) its.copied.Await(pulled - kSlots + 1);
        Gather(client, begin, its.rows + pulled % kSlots * kBlock * kDim);
        its.pulled.Raise();
      }
      for (size_t begin = 0; begin < its.count; begin += kBlock) {
        its.pushed.Await(pushed + 1);
        const size_t count = std::min(kBlock, its.count - begin);
        const uint32_t* const numbers = numbers_[client].data() + begin;
        if (at_step_end_) {
          for (size_t i = 0; i < count; ++i) place_of_[client][numbers[i]] = static_cast<uint32_t>(begin + i + 1);
        } else {
          Subtract(numbers, its.gradients + pushed % kSlots * kBlock * kDim, count);
          its.subtracted.Raise();
        }
        ++pushed;
      }
      if (at_step_end_) CommitHalf(client, step);
      its.done.Raise();
    }
  }

  void Gather(int client, size_t begin, float* to) {
    const Shared& its = job_.of_client[client];
    uint32_t* const numbers = numbers_[client].data() + begin;
    kernels::Vectorised([=, &rows = rows_, ids = its.ids + begin, count = std::min(kBlock, its.count - begin)] {
      ForEachFound(rows, ids, count, numbers, [&](size_t i) { std::memcpy(to + i * kDim, rows.row(numbers[i]), kRowBytes); });
    });
  }

  void Subtract(const uint32_t* numbers, const float* gradients, size_t count) {
    kernels::Vectorised([=, &rows = rows_, locks = locks_.data()] {
      for (size_t i = 0; i < count + kAhead; ++i) {
        if (i < count) rows.Fetch(numbers[i]);
        if (i < kAhead) continue;
        const uint32_t number = numbers[i - kAhead];
        std::atomic<uint8_t>& lock = locks[number % kLocks];
        while (lock.exchange(1, std::memory_order_acquire) != 0) sched_yield();
        SubtractFrom(rows.row(number), gradients + (i - kAhead) * kDim, nullptr);
        lock.store(0, std::memory_order_release);
      }
    });
  }

  // The rows whose numbers are even or odd, of both clients, once all gradients are there.
  void CommitHalf(int half, uint32_t step) {
    MeetOther(3 * step - 2);
    for (int client = 0; client < kClients; ++client) {
      const std::vector<uint32_t>& numbers = numbers_[client];
      std::vector<uint32_t>& mine = mine_[half];
      mine.clear();
      for (uint32_t i = 0; i < job_.of_client[client].count; ++i) {
        if (static_cast<int>(numbers[i] % 2) == half) mine.push_back(i);
      }
      kernels::Vectorised([=, &rows = rows_, mine = mine.data(), size = mine.size(), numbers = numbers.data(), others = place_of_[1 - client].data(),
                           gradients = job_.of_client[client].gradients, of_other = job_.of_client[1 - client].gradients] {
        for (size_t i = 0; i < size + kAhead; ++i) {
          if (i < size) {
            rows.Fetch(numbers[mine[i]]);
            FetchRow<kDim>(gradients + mine[i] * kDim);
            __builtin_prefetch(others + numbers[mine[i]]);
          }
          if (i < kAhead) continue;
          const size_t at = mine[i - kAhead];
          const uint32_t other = others[numbers[at]];
          if (other != 0 && client == 1) continue;  // added up when it was client 0's turn
          SubtractFrom(rows.row(numbers[at]), gradients + at * kDim, other == 0 ? nullptr : of_other + (size_t{other} - 1) * kDim);
        }
      });
    }
    MeetOther(3 * step - 1);
    for (size_t i = 0; i < job_.of_client[half].count; ++i) place_of_[half][numbers_[half][i]] = 0;
    MeetOther(3 * step);
  }
  void MeetOther(uint32_t meeting) {
    arrived_.Raise();
    arrived_.Await(kClients * meeting);
  }

  void Compare(uint32_t steps) const {
    std::vector<float> expected(kNumRows + 1);
    for (int client = 0; client < kClients; ++client) {
      std::vector<uint32_t> seen(kNumRows + 1);
      for (uint32_t step = 0; step < steps; ++step) {
        for (size_t place = 0; place < kIdsPerStep; ++place) {
          const uint64_t id = IdAt(client, step, place);
          if (std::exchange(seen[id], step + 1) != step + 1) expected[id] -= 1;
        }
      }
    }
    for (uint64_t id = 1; id <= kNumRows; ++id) {
      for (size_t column = 0; column < kDim; ++column) TANDEM_CHECK_EQ(rows_.row(rows_.Find(id))[column], expected[id]) << "row " << id;
    }
  }

  static constexpr size_t kLocks = 65536;

  Job& job_;
  const bool at_step_end_;
  Rows rows_;
  std::vector<uint32_t> numbers_[kClients], place_of_[kClients], mine_[kClients];  // place_of_: by row, from 1 on
  std::vector<std::atomic<uint8_t>> locks_ = std::vector<std::atomic<uint8_t>>(kLocks);
  Count arrived_;
};

class Client {
 public:
  Client(Job* job, int rank, bool at_step_end)
      : its_(job->of_client[rank]), at_step_end_(at_step_end), rows_(Buffer::Allocate(kIdsPerStep * kRowBytes)) {
    for (uint64_t step = 0; step < kBatches; ++step) {
      for (size_t place = 0; place < kIdsPerStep; ++place) batches_[step].push_back(IdAt(rank, step, place));
    }
    std::memset(rows_->data(), 0, rows_->num_bytes());
  }

  void Step() {
    Merge(batches_[num_steps_ % kBatches]);
    its_.asked.Raise();
    const size_t count = its_.count;
    float* const rows = static_cast<float*>(rows_->data());
    for (size_t begin = 0; begin < count; begin += kBlock) {
      its_.pulled.Await(++pulled_);
      std::memcpy(rows + begin * kDim, its_.rows + (pulled_ - 1) % kSlots * kBlock * kDim, std::min(kBlock, count - begin) * kRowBytes);
      its_.copied.Raise();
    }
    for (size_t begin = 0; begin < count; begin += kBlock) {
      if (!at_step_end_ && pushed_ >= kSlots) its_.subtracted.Await(pushed_ - kSlots + 1);
      float* const gradients = its_.gradients + (at_step_end_ ? begin : pushed_ % kSlots * kBlock) * kDim;
      kernels::Vectorised([=, rows = rows + begin * kDim, size = std::min(kBlock, count - begin) * kDim] {
        for (size_t i = 0; i < size; ++i) gradients[i] = 1 + 0 * rows[i];
      });
      its_.pushed.Raise();
      ++pushed_;
    }
    its_.done.Await(++num_steps_);
  }

 private:
  void Merge(const std::vector<uint64_t>& batch) {
    std::fill(seen_.begin(), seen_.end(), 0);
    its_.count = 0;
    for (const uint64_t id : batch) {
      size_t slot = Spread(id, kSeenBits);
      while (seen_[slot] != 0 && seen_[slot] != id) slot = (slot + 1) % seen_.size();
      if (seen_[slot] == 0) its_.ids[its_.count++] = seen_[slot] = id;
    }
  }

  static constexpr int kSeenBits = 18;

  Shared& its_;
  const bool at_step_end_;
  const std::shared_ptr<Buffer> rows_;
  std::vector<uint64_t> batches_[kBatches], seen_ = std::vector<uint64_t>(size_t{1} << kSeenBits);
  uint32_t num_steps_ = 0, pulled_ = 0, pushed_ = 0;
};

pid_t Fork(const std::function<void()>& run) {
  const pid_t pid = fork();
  TANDEM_CHECK_GE(pid, 0);
  if (pid != 0) return pid;
  run();
  _exit(0);
}

void Measure(bool at_step_end, uint32_t steps) {
  void* const memory = mmap(nullptr, sizeof(Job), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  TANDEM_CHECK(memory != MAP_FAILED);
  std::memset(memory, 0, sizeof(Job));
  Job& job = *new (memory) Job;
  std::vector<pid_t> processes{Fork([&] { Server(&job, at_step_end).Run(steps); })};
  for (int rank = 0; rank < kClients; ++rank) {
    processes.push_back(Fork([&] {
      Client client(&job, rank, at_step_end);
      job.ready.Raise();
      job.ready.Await(1 + kClients);
      std::vector<double> seconds;
      Stopwatch watch;
      for (uint32_t step = 0; step < steps; ++step) {
        client.Step();
        seconds.push_back(watch.Lap());
      }
      std::sort(seconds.begin() + kWarmUp, seconds.end());
      job.seconds[rank] = seconds[(kWarmUp + seconds.size()) / 2];
    }));
  }
  for (const pid_t process : processes) {
    int status = 0;
    TANDEM_CHECK_EQ(waitpid(process, &status, 0), process);
    TANDEM_CHECK_EQ(status, 0);
  }
  double rate = 0;
  for (const double seconds : job.seconds) rate += static_cast<double>(kIdsPerStep) / seconds;
  std::printf("gradients subtracted %-18s %6.2f M rows/s, a step %5.1f ms\n", at_step_end ? "at the step's end:" : "as they come:", rate * 1e-6,
              job.seconds[0] * 1e3);
  std::fflush(stdout);
  munmap(memory, sizeof(Job));
}

}  // namespace
}  // namespace tandem::bare

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 80;
  if (steps <= tandem::bare::kWarmUp) {
    std::fprintf(stderr, "usage: tandem_bare_step_bench [STEPS, more than %d]\n", tandem::bare::kWarmUp);
    return 2;
  }
  for (int repetition = 0; repetition < 3; ++repetition) {
    for (const bool at_step_end : {false, true}) tandem::bare::Measure(at_step_end, static_cast<uint32_t>(steps));
  }
}
