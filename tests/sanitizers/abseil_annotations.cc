// Tells ThreadSanitizer about Abseil's locks, which a distribution's library, built without
// ThreadSanitizer, does not tell.
// These definitions come before the library's for every caller in the process. Each calls the
// library's function (the next symbol of its name) and names the mutex that it takes or gives back.
// ThreadSanitizer then sees the order that a mutex makes. It still reports accesses that no mutex
// orders (report_test.cc), and nothing is suppressed.
// Blind spot: conditions are not checked, because the library runs them on any thread.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>
#include <string>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"

#pragma GCC diagnostic ignored "-Wpmf-conversions"

namespace {

// The mangled name of one of the functions below. Builds of Abseil differ in it.
std::string NameOf(void* function) {
  Dl_info info;
  if (dladdr(function, &info) == 0 || info.dli_sname == nullptr) std::abort();
  return info.dli_sname;
}

// The library's own definition. A static local would not do: its guard would be a lock of its own.
template <class Function>
class Next {
 public:
  Function* Of(void* function) {
    void* found = found_.load(std::memory_order_relaxed);
    if (found == nullptr) found = Find(NameOf(function));
    return reinterpret_cast<Function*>(found);
  }
  void* Find(const std::string& name) {
    void* const found = dlsym(RTLD_NEXT, name.c_str());
    if (found == nullptr) std::abort();
    found_.store(found, std::memory_order_relaxed);
    return found;
  }
  void* known() const { return found_.load(std::memory_order_relaxed); }

 private:
  std::atomic<void*> found_{nullptr};
};

// The library calls its own functions through ours, so only the outermost call reports the mutex.
class Call {
 protected:
  Call() : outermost_(depth++ == 0) {}
  ~Call() { --depth; }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  const bool outermost_;

 private:
  static inline constinit thread_local int depth = 0;
};

// A call that gives the mutex back and takes it again. REQUIRES: the caller holds the mutex for
// writing.
class Waiting : Call {
 public:
  explicit Waiting(absl::Mutex* mutex) : mutex_(mutex) {
    if (!outermost_) return;
    __tsan_mutex_pre_unlock(mutex_, 0);
    __tsan_mutex_post_unlock(mutex_, 0);
    __tsan_mutex_pre_lock(mutex_, 0);
  }
  ~Waiting() {
    if (outermost_) __tsan_mutex_post_lock(mutex_, 0, 0);
  }

 private:
  absl::Mutex* const mutex_;
};

class Releasing : Call {
 public:
  Releasing(absl::Mutex* mutex, unsigned flags) : mutex_(mutex), flags_(flags) {
    if (outermost_) __tsan_mutex_pre_unlock(mutex_, flags_);
  }
  ~Releasing() {
    if (outermost_) __tsan_mutex_post_unlock(mutex_, flags_);
  }

 private:
  absl::Mutex* const mutex_;
  const unsigned flags_;
};

class Taking : Call {
 public:
  Taking(absl::Mutex* mutex, unsigned flags) : mutex_(mutex), flags_(flags) {
    if (outermost_) __tsan_mutex_pre_lock(mutex_, flags_);
  }
  ~Taking() {
    if (outermost_) __tsan_mutex_post_lock(mutex_, flags_, 0);
  }
  // Records whether an attempt took the mutex. Returns `taken`.
  bool Tried(bool taken) {
    if (!taken) flags_ |= __tsan_mutex_try_lock_failed;
    return taken;
  }

 private:
  absl::Mutex* const mutex_;
  unsigned flags_;
};

}  // namespace

namespace absl {
ABSL_NAMESPACE_BEGIN

#define TANDEM_NEXT(Class, Method, ...) \
  static Next<__VA_ARGS__> next;        \
  const auto real = next.Of(reinterpret_cast<void*>(&Class::Method))

Mutex::~Mutex() {
  static Next<void(Mutex*)> next;
  void* found = next.known();
  if (found == nullptr) {  // nobody can take a destructor's address
    std::string name = NameOf(reinterpret_cast<void*>(&Mutex::Lock));
    found = next.Find(name.replace(name.rfind("4LockEv"), 7, "D1Ev"));
  }
  __tsan_mutex_destroy(this, __tsan_mutex_not_static);
  reinterpret_cast<void (*)(Mutex*)>(found)(this);
}

void Mutex::Lock() {
  TANDEM_NEXT(Mutex, Lock, void(Mutex*));
  const Taking taking(this, 0);
  real(this);
}
void Mutex::ReaderLock() {
  TANDEM_NEXT(Mutex, ReaderLock, void(Mutex*));
  const Taking taking(this, __tsan_mutex_read_lock);
  real(this);
}
void Mutex::Unlock() {
  TANDEM_NEXT(Mutex, Unlock, void(Mutex*));
  const Releasing releasing(this, 0);
  real(this);
}
void Mutex::ReaderUnlock() {
  TANDEM_NEXT(Mutex, ReaderUnlock, void(Mutex*));
  const Releasing releasing(this, __tsan_mutex_read_lock);
  real(this);
}
bool Mutex::TryLock() {
  TANDEM_NEXT(Mutex, TryLock, bool(Mutex*));
  Taking taking(this, __tsan_mutex_try_lock);
  return taking.Tried(real(this));
}
bool Mutex::ReaderTryLock() {
  TANDEM_NEXT(Mutex, ReaderTryLock, bool(Mutex*));
  Taking taking(this, __tsan_mutex_try_read_lock);
  return taking.Tried(real(this));
}

void Mutex::LockWhen(const Condition& condition) {
  TANDEM_NEXT(Mutex, LockWhen, void(Mutex*, const Condition&));
  const Taking taking(this, 0);
  real(this, condition);
}
bool Mutex::LockWhenWithTimeout(const Condition& condition, Duration timeout) {
  TANDEM_NEXT(Mutex, LockWhenWithTimeout, bool(Mutex*, const Condition&, Duration));
  const Taking taking(this, 0);
  return real(this, condition, timeout);
}
bool Mutex::LockWhenWithDeadline(const Condition& condition, Time deadline) {
  TANDEM_NEXT(Mutex, LockWhenWithDeadline, bool(Mutex*, const Condition&, Time));
  const Taking taking(this, 0);
  return real(this, condition, deadline);
}
void Mutex::ReaderLockWhen(const Condition& condition) {
  TANDEM_NEXT(Mutex, ReaderLockWhen, void(Mutex*, const Condition&));
  const Taking taking(this, __tsan_mutex_read_lock);
  real(this, condition);
}

void Mutex::Await(const Condition& condition) {
  TANDEM_NEXT(Mutex, Await, void(Mutex*, const Condition&));
  const Waiting waiting(this);
  real(this, condition);
}
bool Mutex::AwaitWithTimeout(const Condition& condition, Duration timeout) {
  TANDEM_NEXT(Mutex, AwaitWithTimeout, bool(Mutex*, const Condition&, Duration));
  const Waiting waiting(this);
  return real(this, condition, timeout);
}
bool Mutex::AwaitWithDeadline(const Condition& condition, Time deadline) {
  TANDEM_NEXT(Mutex, AwaitWithDeadline, bool(Mutex*, const Condition&, Time));
  const Waiting waiting(this);
  return real(this, condition, deadline);
}

void CondVar::Wait(Mutex* mutex) {
  TANDEM_NEXT(CondVar, Wait, void(CondVar*, Mutex*));
  const Waiting waiting(mutex);
  real(this, mutex);
}
bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  TANDEM_NEXT(CondVar, WaitWithTimeout, bool(CondVar*, Mutex*, Duration));
  const Waiting waiting(mutex);
  return real(this, mutex, timeout);
}
bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  TANDEM_NEXT(CondVar, WaitWithDeadline, bool(CondVar*, Mutex*, Time));
  const Waiting waiting(mutex);
  return real(this, mutex, deadline);
}

// Once a notification has come, readers look at it without its mutex.
void Notification::Notify() {
  TANDEM_NEXT(Notification, Notify, void(Notification*));
  __tsan_release(this);
  real(this);
}
void Notification::WaitForNotification() const {
  TANDEM_NEXT(Notification, WaitForNotification, void(const Notification*));
  real(this);
  __tsan_acquire(const_cast<Notification*>(this));
}
bool Notification::WaitForNotificationWithTimeout(Duration timeout) const {
  TANDEM_NEXT(Notification, WaitForNotificationWithTimeout, bool(const Notification*, Duration));
  const bool notified = real(this, timeout);
  if (notified) __tsan_acquire(const_cast<Notification*>(this));
  return notified;
}
bool Notification::WaitForNotificationWithDeadline(Time deadline) const {
  TANDEM_NEXT(Notification, WaitForNotificationWithDeadline, bool(const Notification*, Time));
  const bool notified = real(this, deadline);
  if (notified) __tsan_acquire(const_cast<Notification*>(this));
  return notified;
}

// The thread that drops the last reference frees data that other threads have read.
void Status::UnrefNonInlined(uintptr_t rep) {
  TANDEM_NEXT(Status, UnrefNonInlined, void(uintptr_t));
  void* const shared = reinterpret_cast<void*>(rep);
  __tsan_release(shared);
  __tsan_acquire(shared);
  real(rep);
}

#undef TANDEM_NEXT

ABSL_NAMESPACE_END
}  // namespace absl
