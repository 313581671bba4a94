#include "rpc/credentials.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "rpc/constant_time.h"

namespace tandem::rpc {
namespace {

constexpr size_t kDrawnBytes = 32;
constexpr std::string_view kCallPurpose = "tandem/call/v1", kMasterPurpose = "tandem/master/v1";
constexpr char kScheme[] = "Bearer ";
constexpr char kHowToMakeOne[] =
    "make one with: (umask 077; head -c 32 /dev/urandom | base64 > FILE)";

absl::Status CannotRead(const std::string& path, const char* why) {
  return absl::InvalidArgumentError(
      absl::StrCat("cannot read the job's secret from ", path, ": ", why));
}

// A file that everybody may read holds no secret, and a file that everybody may write may hold
// anybody's. Pipes have no other readers.
absl::Status CheckMode(int fd, const std::string& path) {
  struct stat info;
  if (fstat(fd, &info) != 0) return CannotRead(path, std::strerror(errno));
  if (S_ISDIR(info.st_mode)) return CannotRead(path, "a folder");
  if (!S_ISREG(info.st_mode) || (info.st_mode & (S_IROTH | S_IWOTH)) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "every user of this machine may read or write the job's secret in %s (mode %03o): "
      "chmod 600 it, or draw another one",
      path, info.st_mode & 0777));
}

// Reads at most one byte more than a secret with its line end may have.
absl::StatusOr<std::vector<char>> ReadBytes(int fd, const std::string& path) {
  // Room for a two-byte line end and one byte too many.
  std::vector<char> bytes(Secret::kMaxBytes + 3);
  size_t num_read = 0;
  while (num_read < bytes.size()) {
    const ssize_t got = read(fd, bytes.data() + num_read, bytes.size() - num_read);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return CannotRead(path, std::strerror(errno));
    if (got == 0) break;
    num_read += static_cast<size_t>(got);
  }
  bytes.resize(num_read);
  return bytes;
}

}  // namespace

absl::StatusOr<Secret> Secret::Draw() {
  char random[kDrawnBytes];
  size_t num_drawn = 0;
  while (num_drawn < sizeof random) {
    const ssize_t got = getrandom(random + num_drawn, sizeof random - num_drawn, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      return absl::UnavailableError(
          absl::StrCat("cannot draw a secret for the job: ", std::strerror(errno)));
    num_drawn += static_cast<size_t>(got);
  }
  std::string text = absl::BytesToHexString(absl::string_view(random, sizeof random));
  Secret secret(std::vector<char>(text.begin(), text.end()));
  OPENSSL_cleanse(random, sizeof random);
  OPENSSL_cleanse(text.data(), text.size());
  return secret;
}

absl::StatusOr<Secret> Secret::Read(const std::string& path) {
  const bool is_standard_input = path == "-";
  const std::string origin = is_standard_input ? "standard input" : path;
  const int fd = is_standard_input ? dup(STDIN_FILENO) : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return CannotRead(origin, std::strerror(errno));
  const absl::Cleanup close_it = [fd] { close(fd); };
  RETURN_IF_ERROR(CheckMode(fd, origin));
  ASSIGN_OR_RETURN(std::vector<char> bytes, ReadBytes(fd, origin));
  // Replaces standard input, so that later code does not find the secret's pipe.
  if (const int nothing = is_standard_input ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1;
      nothing >= 0) {
    dup2(nothing, STDIN_FILENO);
    close(nothing);
  }
  const Secret all(std::move(bytes));  // wipes the bytes in its destructor
  return FromText({all.bytes_.data(), all.bytes_.size()}, origin);
}

absl::StatusOr<Secret> Secret::FromText(std::string_view text, const std::string& origin) {
  if (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  if (!text.empty() && text.back() == '\r') text.remove_suffix(1);
  if (text.size() < kMinBytes || text.size() > kMaxBytes) {
    const char* which = text.size() < kMinBytes ? "fewer" : "more";
    const size_t limit = text.size() < kMinBytes ? kMinBytes : kMaxBytes;
    return absl::InvalidArgumentError(absl::StrCat("the job's secret in ", origin, " has ", which,
                                                   " than ", limit, " bytes; ", kHowToMakeOne));
  }
  return Secret(std::vector<char>(text.begin(), text.end()));
}

Secret& Secret::operator=(Secret&& other) noexcept {
  if (this != &other) {
    Wipe();
    bytes_ = std::move(other.bytes_);
  }
  return *this;
}

Secret::~Secret() { Wipe(); }

void Secret::Wipe() {
  if (!bytes_.empty()) OPENSSL_cleanse(bytes_.data(), bytes_.size());
}

absl::Status Secret::Write(int fd) const {
  ssize_t written;
  do {
    written = write(fd, bytes_.data(), bytes_.size());
  } while (written < 0 && errno == EINTR);
  if (written == static_cast<ssize_t>(bytes_.size())) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("cannot hand the job's secret over: ",
                   written < 0 ? std::strerror(errno) : "the pipe is full"));
}

Credentials::Credentials(const Secret& secret) {
  const auto derive = [&secret](std::string_view purpose) {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int num_bytes = 0;
    const unsigned char* done = HMAC(
        EVP_sha256(), secret.bytes_.data(), static_cast<int>(secret.bytes_.size()),
        reinterpret_cast<const unsigned char*>(purpose.data()), purpose.size(), digest, &num_bytes);
    TANDEM_CHECK(done != nullptr && num_bytes == 32)
        << "HMAC-SHA256 gave " << num_bytes << " bytes";
    return absl::BytesToHexString(
        absl::string_view(reinterpret_cast<const char*>(digest), num_bytes));
  };
  shown_ = absl::StrCat(kScheme, derive(kCallPurpose));
  proof_ = derive(kMasterPurpose);
  TANDEM_CHECK_EQ(shown_.size(), kShownBytes);
}

absl::Status Credentials::Check(std::string_view shown) const {
  if (shown_.empty() || EqualInConstantTime(shown, shown_)) return absl::OkStatus();
  return absl::UnauthenticatedError(
      "the caller does not know this job's secret: give it the secret of the job that it belongs "
      "to (--secret-file, TANDEM_SECRET)");
}

absl::Status Credentials::CheckProof(std::string_view proof) const {
  if (proof_.empty() || EqualInConstantTime(proof, proof_)) return absl::OkStatus();
  return absl::UnauthenticatedError("it does not know this job's secret");
}

}  // namespace tandem::rpc
