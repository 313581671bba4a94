// Checks that the sanitizers still report faults, above all races with abseil_annotations.cc
// linked.
// The annotations tell ThreadSanitizer about mutexes and must not claim an order that does not
// exist. Each fault runs in a process of its own, which the sanitizer ends.
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

#ifdef __SANITIZE_THREAD__

constexpr int kReported = 66;  // ThreadSanitizer's exit code

// Two threads that add to one number, each with `add`.
template <class Add>
void AddFromTwoThreads(const Add& add) {
  const auto add_often = [&add](int thread) {
    for (int i = 0; i < 1000; ++i) add(thread);
  };
  std::thread other(add_often, 1);
  add_often(0);
  other.join();
  std::exit(0);
}

class ThreadSanitizerTest : public testing::Test {
 protected:
  ThreadSanitizerTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  int number_ = 0;
  absl::Mutex mutex_, another_;
};

TEST_F(ThreadSanitizerTest, ReportsANumberWithoutAMutex) {
  EXPECT_EXIT(AddFromTwoThreads([&](int) { ++number_; }), testing::ExitedWithCode(kReported),
              "data race");
}

TEST_F(ThreadSanitizerTest, ReportsEachThreadWithAMutexOfItsOwn) {
  EXPECT_EXIT(AddFromTwoThreads([&](int thread) {
                absl::MutexLock lock(thread == 0 ? &mutex_ : &another_);
                ++number_;
              }),
              testing::ExitedWithCode(kReported), "data race");
}

TEST_F(ThreadSanitizerTest, ReportsAWriteUnderAReaderLock) {
  EXPECT_EXIT(AddFromTwoThreads([&](int) {
                absl::ReaderMutexLock lock(&mutex_);
                ++number_;
              }),
              testing::ExitedWithCode(kReported), "data race");
}

TEST_F(ThreadSanitizerTest, ReportsAWriteBesideTheLock) {
  EXPECT_EXIT(AddFromTwoThreads([&](int) {
                { absl::MutexLock lock(&mutex_); }
                ++number_;
              }),
              testing::ExitedWithCode(kReported), "data race");
}

TEST_F(ThreadSanitizerTest, ReportsAWriteAfterTheNotification) {
  const auto race = [&] {
    absl::Notification notification;
    std::thread other([&] {
      notification.Notify();
      ++number_;
    });
    notification.WaitForNotification();
    ++number_;
    other.join();
    std::exit(0);
  };
  EXPECT_EXIT(race(), testing::ExitedWithCode(kReported), "data race");
}

TEST_F(ThreadSanitizerTest, ReportsMutexesTakenInBothOrders) {
  const auto both_orders = [&] {
    for (bool swapped : {false, true}) {
      absl::MutexLock first(swapped ? &another_ : &mutex_), second(swapped ? &mutex_ : &another_);
    }
    std::exit(0);
  };
  EXPECT_DEATH(both_orders(),
               "lock-order-inversion");  // Abseil, which may look for them too, then aborts
}

TEST_F(ThreadSanitizerTest, IsSilentAboutWaitsNotificationsAndReaders) {
  const auto ordered = [&] {
    bool started = false;
    absl::Notification written;
    another_.Lock();
    std::thread other([&] {
      for (int i = 0; i < 1000; ++i) {
        absl::MutexLock lock(&mutex_);
        started = true;
        ++number_;
      }
      another_.Lock();
      another_.Unlock();
      number_ = 7;
      written.Notify();
    });
    for (int i = 0; i < 1000; ++i) {
      absl::ReaderMutexLock lock(&mutex_);
      if (number_ < 0) std::abort();
    }
    const auto has_started = [&started] { return started; };
    mutex_.LockWhen(absl::Condition(&has_started));
    ++number_;
    if (!mutex_.AwaitWithTimeout(absl::Condition(&has_started), absl::Seconds(10))) std::abort();
    ++number_;
    mutex_.Unlock();
    if (!mutex_.LockWhenWithTimeout(absl::Condition(&has_started), absl::Seconds(10))) std::abort();
    mutex_.Unlock();
    another_.Unlock();
    written.WaitForNotification();
    const int last = number_;
    other.join();
    std::exit(last == 7 ? 0 : 1);
  };
  EXPECT_EXIT(ordered(), testing::ExitedWithCode(0), "");
}

#endif
#ifdef __SANITIZE_ADDRESS__

TEST(AddressSanitizerTest, ReportsMemoryThatIsGone) {
  const auto use_after_free = [] {
    auto number = std::make_unique<volatile int>(1);
    volatile int* const gone = number.get();
    number.reset();
    std::exit(*gone);
  };
  EXPECT_EXIT(use_after_free(), testing::ExitedWithCode(1), "heap-use-after-free");
}

TEST(UndefinedBehaviorSanitizerTest, ReportsASumThatOverflows) {
  const auto overflow = [] {
    volatile int number = std::numeric_limits<int>::max();
    number = number + 1;
    std::exit(0);
  };
  EXPECT_EXIT(overflow(), testing::ExitedWithCode(1), "signed integer overflow");
}

#endif

}  // namespace
}  // namespace tandem
