#include "rpc/store/contents.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace tandem::rpc {

absl::Status CheckStoreKey(const std::string& key) {
  if (key.size() <= kMaxStoreKeyBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("store: a key of ", key.size(), " bytes, at most ", kMaxStoreKeyBytes));
}

absl::Status StoreContents::CheckRoom(const std::string& key, bool is_new, size_t num_bytes) const {
  RETURN_IF_ERROR(CheckStoreKey(key));
  if (is_new && values_.size() + counters_.size() >= kMaxStoreKeys) {
    return absl::ResourceExhaustedError(
        absl::StrCat("store: it holds ", kMaxStoreKeys, " keys already"));
  }
  if (num_bytes_ + num_bytes > kMaxStoreBytes) {
    return absl::ResourceExhaustedError(absl::StrCat("store: it holds ", num_bytes_, " bytes, and ",
                                                     num_bytes, " more are above ",
                                                     kMaxStoreBytes));
  }
  return absl::OkStatus();
}

absl::Status StoreContents::Set(const std::string& key, const std::string& value) {
  if (value.size() > kMaxStoreValueBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("store: a value of ", value.size(), " bytes under \"",
                     absl::CHexEscape(key.substr(0, 80)), "\", at most ", kMaxStoreValueBytes));
  }
  const auto found = values_.find(key);
  const bool is_new = found == values_.end();
  const size_t old_bytes = is_new ? 0 : found->second.size(),
               new_bytes = value.size() + (is_new ? key.size() : 0);
  RETURN_IF_ERROR(CheckRoom(key, is_new, new_bytes > old_bytes ? new_bytes - old_bytes : 0));
  num_bytes_ += new_bytes;
  num_bytes_ -= old_bytes;
  values_[key] = value;
  return absl::OkStatus();
}

const std::string* StoreContents::Find(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

absl::StatusOr<int64_t> StoreContents::Add(const std::string& key, int64_t amount) {
  const auto found = counters_.find(key);
  const bool is_new = found == counters_.end();
  RETURN_IF_ERROR(CheckRoom(key, is_new, is_new ? key.size() : 0));
  int64_t sum = 0;
  if (__builtin_add_overflow(is_new ? 0 : found->second, amount, &sum)) {
    return absl::InvalidArgumentError(
        absl::StrCat("store: ", found->second, " + ", amount, ", for counter \"",
                     absl::CHexEscape(key.substr(0, 80)), "\", is no 64-bit number"));
  }
  if (is_new) num_bytes_ += key.size();
  counters_[key] = sum;
  return sum;
}

int64_t StoreContents::Counter(const std::string& key) const {
  const auto found = counters_.find(key);
  return found == counters_.end() ? 0 : found->second;
}

}  // namespace tandem::rpc
