// CHECK macros for broken invariants of this program. They print both values and the place, and end
// the process. Causes outside the process (files, peers, user input) are absl::Status and never
// come here.
// Thread rule: any thread.
#pragma once

#include <sstream>

namespace tandem::internal {

// Collects a message and aborts in the destructor. Never returns to the caller.
class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const char* condition);
  [[noreturn]] ~CheckFailure();
  std::ostream& stream() { return stream_; }

 private:
  std::ostringstream stream_;
};

}  // namespace tandem::internal

#define TANDEM_CHECK(condition)             \
  if (__builtin_expect(!!(condition), 1)) { \
  } else                                    \
    ::tandem::internal::CheckFailure(__FILE__, __LINE__, #condition).stream()

#define TANDEM_CHECK_OP_(a, op, b) TANDEM_CHECK((a)op(b)) << " (" << (a) << " vs " << (b) << ") "
#define TANDEM_CHECK_EQ(a, b) TANDEM_CHECK_OP_(a, ==, b)
#define TANDEM_CHECK_NE(a, b) TANDEM_CHECK_OP_(a, !=, b)
#define TANDEM_CHECK_LT(a, b) TANDEM_CHECK_OP_(a, <, b)
#define TANDEM_CHECK_LE(a, b) TANDEM_CHECK_OP_(a, <=, b)
#define TANDEM_CHECK_GT(a, b) TANDEM_CHECK_OP_(a, >, b)
#define TANDEM_CHECK_GE(a, b) TANDEM_CHECK_OP_(a, >=, b)
