#include "rpc/shared/poller.h"

#include <algorithm>
#include <atomic>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "kernels/trace/trace.h"

namespace tandem::rpc {

namespace {

// Rounds of yielding before the thread sleeps. About 30 us if no other thread wants the core.
// Waking up on a virtual machine takes up to 50 us.
constexpr int kYields = 200;
// A thread that never sleeps must still notice peers that come and go.
constexpr int kRoundsBetweenEvents = 64;
constexpr int kSleepMilliseconds = 1000;  // a lost ring would cost this much, never a hang
constexpr int kMaxEvents = 64;

}  // namespace

struct SharedPoller::State : std::enable_shared_from_this<State> {
  explicit State(std::string thread_name) : thread_name(std::move(thread_name)) {
    epoll = epoll_create1(EPOLL_CLOEXEC);
    bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = nullptr;
    works = epoll >= 0 && bell >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, bell, &event) == 0;
  }
  ~State() {
    if (epoll >= 0) close(epoll);
    if (bell >= 0) close(bell);
  }

  void Run();
  void TakeNew();
  void HandleEvents(int timeout_milliseconds);
  void Remove(Member* member);
  void Wake() {
    const uint64_t one = 1;
    // Fails only if the bell already rings.
    [[maybe_unused]] const ssize_t written = write(bell, &one, sizeof one);
  }

  const std::string thread_name;
  int epoll = -1, bell = -1;
  bool works = false;
  std::vector<std::shared_ptr<Member>> members;  // used by the thread only
  absl::Mutex mutex;
  std::vector<std::shared_ptr<Member>> added ABSL_GUARDED_BY(mutex);
  // Set under the mutex, so that the thread sees every member added before.
  std::atomic<bool> stopping{false};
  std::thread thread ABSL_GUARDED_BY(mutex);
};

SharedPoller::SharedPoller(std::string thread_name)
    : state_(std::make_shared<State>(std::move(thread_name))) {
  absl::MutexLock lock(&state_->mutex);
  if (state_->works) state_->thread = std::thread([state = state_] { state->Run(); });
}

void SharedPoller::Stop() {
  std::thread thread;
  {
    absl::MutexLock lock(&state_->mutex);
    state_->stopping = true;
    thread.swap(state_->thread);
  }
  state_->Wake();
  if (!thread.joinable()) return;
  if (thread.get_id() == std::this_thread::get_id())
    thread.detach();
  else
    thread.join();
}

void SharedPoller::Add(std::shared_ptr<Member> member) {
  {
    absl::MutexLock lock(&state_->mutex);
    if (state_->works && !state_->stopping) state_->added.push_back(std::exchange(member, nullptr));
  }
  if (member != nullptr)
    member->End();
  else
    state_->Wake();
}

void SharedPoller::Wake() { state_->Wake(); }

void SharedPoller::State::TakeNew() {
  std::vector<std::shared_ptr<Member>> fresh;
  {
    absl::MutexLock lock(&mutex);
    fresh.swap(added);
  }
  for (auto& member : fresh) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = member.get();
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, member->fd(), &event) == 0)
      members.push_back(std::move(member));
    else
      member->End();
  }
}

void SharedPoller::State::Remove(Member* member) {
  const auto found = std::find_if(members.begin(), members.end(),
                                  [&](const auto& other) { return other.get() == member; });
  if (found == members.end()) return;
  const std::shared_ptr<Member> gone = std::move(*found);
  members.erase(found);
  epoll_ctl(epoll, EPOLL_CTL_DEL, gone->fd(), nullptr);
  gone->End();
}

void SharedPoller::State::HandleEvents(int timeout_milliseconds) {
  epoll_event events[kMaxEvents];
  const int count = epoll_wait(epoll, events, kMaxEvents, timeout_milliseconds);
  for (int i = 0; i < count; ++i) {
    if (events[i].data.ptr == nullptr) {
      uint64_t rings;
      [[maybe_unused]] const ssize_t taken = read(bell, &rings, sizeof rings);
      continue;
    }
    Member* const member = static_cast<Member*>(events[i].data.ptr);
    if (!member->OnReadable()) Remove(member);
  }
}

void SharedPoller::State::Run() {
  NameThisThread(thread_name);
  int idle = 0, rounds = 0;
  while (!stopping) {
    TakeNew();
    bool busy = false;
    for (size_t i = 0; i < members.size(); ++i) busy |= members[i]->Step();
    if (busy) idle = 0;
    if (++rounds % kRoundsBetweenEvents == 0) HandleEvents(0);
    if (busy) continue;
    if (++idle < kYields) {
      sched_yield();
      continue;
    }
    bool nothing = true;
    for (const auto& member : members) nothing &= member->Rest();
    if (!nothing) continue;
    HandleEvents(kSleepMilliseconds);
    idle = 0;
  }
  TakeNew();
  for (const auto& member : std::exchange(members, {})) member->End();
}

}  // namespace tandem::rpc
