// A job's secret, and the credentials derived from it: the token that every call and connection
// between the job's processes carries. A caller without the token is refused before anything else
// of its call is read. proto/wire.proto defines the token. Nothing here can be printed, and no
// error quotes a secret or a token.
// Thread rule: a Secret has one owner; any thread may use Credentials.
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

// Bytes that only the processes of one job know. The destructor wipes them.
class Secret {
 public:
  static constexpr size_t kMinBytes = 16, kMaxBytes = 1024;

  // A fresh secret of 256 random bits, as text without a line end.
  static absl::StatusOr<Secret> Draw();
  // Reads a file, without one line end at its end. "-" reads standard input and closes it.
  // InvalidArgument if the file cannot be read, or has too few or too many bytes. Also
  // InvalidArgument if every user of the machine may read or write the file.
  static absl::StatusOr<Secret> Read(const std::string& path);
  // `text` without one line end at its end. `origin` names the source in errors.
  static absl::StatusOr<Secret> FromText(std::string_view text, const std::string& origin);

  Secret(Secret&& other) noexcept = default;
  Secret& operator=(Secret&& other) noexcept;
  Secret(const Secret&) = delete;
  Secret& operator=(const Secret&) = delete;
  ~Secret();

  // Writes the secret to a pipe, for a child process. Unavailable if the pipe does not take all
  // bytes at once.
  absl::Status Write(int fd) const;

 private:
  friend class Credentials;
  explicit Secret(std::vector<char> bytes) : bytes_(std::move(bytes)) {}
  void Wipe();

  std::vector<char> bytes_;
};

// The token that a process shows to others and expects from others. Checks are cheap: the token is
// derived once.
class Credentials {
 public:
  // For a job without a secret: shows nothing and accepts everybody.
  Credentials() = default;
  explicit Credentials(const Secret& secret);

  bool empty() const { return shown_.empty(); }
  // The token: the value of the metadata entry kMetadataKey and of a shared-memory hello. Empty
  // without a secret.
  const std::string& shown() const { return shown_; }
  // Ok if `shown` equals this process's token, or if there is no secret. Otherwise Unauthenticated,
  // always with the same text. Takes the same time for every text of the right length.
  absl::Status Check(std::string_view shown) const;

  // A master shows this proof in return, so that a role never joins the master of another job.
  // Differs from shown(), because callers have already sent shown().
  const std::string& proof() const { return proof_; }
  // Like Check, for a proof.
  absl::Status CheckProof(std::string_view proof) const;

  // The entry of a gRPC call's metadata that carries the token.
  static constexpr char kMetadataKey[] = "authorization";
  // The length of shown(), if there is a secret.
  static constexpr size_t kShownBytes = 71;

 private:
  std::string shown_, proof_;
};

// Keep secrets out of logs and test output: the compiler refuses to print them.
std::ostream& operator<<(std::ostream&, const Secret&) = delete;
std::ostream& operator<<(std::ostream&, const Credentials&) = delete;

}  // namespace tandem::rpc
