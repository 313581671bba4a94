// A job's secret, and the credentials made of it: the token that every call and every connection between the job's processes carries.
// Who does not know the secret is a stranger and is refused before anything else of the call is read. proto/wire.proto says how the token
// is made. Nothing here can be printed, and no error quotes a secret or a token.
// Thread rule: a Secret has one owner; Credentials may be used by any thread.
#pragma once

#include <cstddef>
#include <iosfwd>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem::rpc {

// Bytes that only the processes of one job know. They are wiped when the object goes.
class Secret {
 public:
  static constexpr size_t kMinBytes = 16, kMaxBytes = 1024;

  // A fresh secret of 256 random bits, as text without a line end.
  static absl::StatusOr<Secret> Draw();
  // What a file holds, without one line end at its end; "-" is standard input, which is closed afterwards. InvalidArgument if the file
  // cannot be read, has too few or too many bytes, or every user of the machine may read or write it.
  static absl::StatusOr<Secret> Read(const std::string& path);
  // `text` without one line end at its end. `origin` names it in errors.
  static absl::StatusOr<Secret> FromText(std::string_view text, const std::string& origin);

  Secret(Secret&& other) noexcept = default;
  Secret& operator=(Secret&& other) noexcept;
  Secret(const Secret&) = delete;
  Secret& operator=(const Secret&) = delete;
  ~Secret();

  // Writes the secret to a pipe, for a child. Unavailable if it does not take everything at once.
  absl::Status Write(int fd) const;

 private:
  friend class Credentials;
  explicit Secret(std::vector<char> bytes) : bytes_(std::move(bytes)) {}
  void Wipe();

  std::vector<char> bytes_;
};

// What a process shows to others and asks of them. Cheap to check: the token is derived once.
class Credentials {
 public:
  // Of a job without a secret: shows nothing and lets everybody in.
  Credentials() = default;
  explicit Credentials(const Secret& secret);

  bool empty() const { return shown_.empty(); }
  // The value of the metadata entry kMetadataKey, and what a shared-memory hello carries. Empty without a secret.
  const std::string& shown() const { return shown_; }
  // Ok if `shown` is what this process would show, or it has no secret; otherwise Unauthenticated, always with the same text. Takes as
  // long for every text of the right length.
  absl::Status Check(std::string_view shown) const;

  // What a master shows in return, so that a role joins no master of another job; another text than shown(), which callers have told.
  const std::string& proof() const { return proof_; }
  // As Check, for a proof.
  absl::Status CheckProof(std::string_view proof) const;

  // The entry of a gRPC call's metadata that carries the token.
  static constexpr char kMetadataKey[] = "authorization";
  // The length of shown() with a secret.
  static constexpr size_t kShownBytes = 71;

 private:
  std::string shown_, proof_;
};

// Keep secrets out of logs and test output: the compiler refuses to print them.
std::ostream& operator<<(std::ostream&, const Secret&) = delete;
std::ostream& operator<<(std::ostream&, const Credentials&) = delete;

}  // namespace tandem::rpc
