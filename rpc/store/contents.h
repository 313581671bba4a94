// The contents of a rendezvous store: small values and counters under string keys. Limits protect
// the master's memory from anybody who can reach it. Pure: nothing waits here.
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem::rpc {

inline constexpr size_t kMaxStoreKeyBytes = 1024;
inline constexpr size_t kMaxStoreValueBytes = size_t{64} << 10;
inline constexpr size_t kMaxStoreKeys = 65536;              // values and counters
inline constexpr size_t kMaxStoreBytes = size_t{16} << 20;  // all keys and values

// InvalidArgument if the key is too long.
absl::Status CheckStoreKey(const std::string& key);

class StoreContents {
 public:
  // InvalidArgument if key or value is too long; ResourceExhausted if the store is full. Errors
  // change nothing.
  absl::Status Set(const std::string& key, const std::string& value);
  // Null if nobody has set the key.
  const std::string* Find(const std::string& key) const;
  // Returns the counter after the addition. InvalidArgument if the key is too long or the sum
  // overflows 64 bits; ResourceExhausted if the store is full. Errors change nothing.
  absl::StatusOr<int64_t> Add(const std::string& key, int64_t amount);
  // 0 if nobody has added to the counter.
  int64_t Counter(const std::string& key) const;

 private:
  // Ok if the store has room for `num_bytes` more and, if `is_new`, for another key.
  absl::Status CheckRoom(const std::string& key, bool is_new, size_t num_bytes) const;

  std::map<std::string, std::string> values_;
  std::map<std::string, int64_t> counters_;
  size_t num_bytes_ = 0;  // bytes of keys and values
};

}  // namespace tandem::rpc
