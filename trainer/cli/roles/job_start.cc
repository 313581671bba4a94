#include "trainer/cli/roles/job_start.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"
#include "proto/wire.pb.h"

namespace tandem::cli {

namespace {

constexpr char kQuestion[] = "start/folder", kLoaded[] = "start/loaded";
constexpr char kSeen[] = "seen ", kUnseen[] = "unseen ", kCannotWrite[] = "cannot write ";
// A network's file system may show a new file late.
constexpr absl::Duration kPatience = absl::Seconds(10), kLookAgain = absl::Milliseconds(100);

std::string Nonce() {
  std::random_device device;
  return absl::StrCat(absl::Hex(device(), absl::kZeroPad8), absl::Hex(device(), absl::kZeroPad8));
}

std::string AnswerKey(const std::string& member) { return absl::StrCat(kQuestion, "/", member); }
std::string PathOf(const std::string& out, const std::string& nonce) {
  return absl::StrCat(out, "/.shared-", nonce);
}

// True if the file of the nonce can be read, now or soon.
bool Sees(const std::string& out, const std::string& nonce) {
  const absl::Time end = absl::Now() + kPatience;
  while (true) {
    std::ifstream file(PathOf(out, nonce));
    std::string text;
    if (file >> text && text == nonce) return true;
    if (absl::Now() >= end) return false;
    absl::SleepFor(kLookAgain);
  }
}

absl::Status WriteNonce(const std::string& out, const std::string& nonce) {
  std::ofstream file(PathOf(out, nonce));
  if (file << nonce << std::endl) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(kCannotWrite, Printable(PathOf(out, nonce)), ": ",
                                             std::strerror(errno != 0 ? errno : EIO)));
}

void Remove(const std::string& path) {
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
}

absl::Status NotShared(const std::string& who, const std::string& path, const std::string& writer) {
  return absl::InvalidArgumentError(
      absl::StrCat(who, " does not see ", Printable(path), " that ", writer,
                   " wrote: --out must be one folder that all roles share"));
}

// The other members that use --out.
std::vector<std::string> OthersOf(const rpc::Assignment& assignment) {
  std::vector<std::string> names;
  for (const rpc::Member& member : assignment.members) {
    if (member.role == WORKER || (member.role == TRAINER && member.rank == 0)) continue;
    names.push_back(rpc::MemberName(member.role, member.rank));
  }
  return names;
}

}  // namespace

absl::Status ProveSharedFolder(rpc::MasterClient& master, const std::string& out,
                               absl::Time deadline) {
  const std::string self = "trainer-0", nonce = Nonce();
  RETURN_IF_ERROR(WriteNonce(out, nonce));
  std::vector<std::string> paths{PathOf(out, nonce)};
  const absl::Cleanup remove = [&paths] {
    for (const std::string& path : paths) Remove(path);
  };
  RETURN_IF_ERROR(master.store().Set(kQuestion, nonce));
  for (const std::string& member : OthersOf(master.assignment())) {
    ASSIGN_OR_RETURN(const std::string answer, master.store().Get(AnswerKey(member), deadline));
    if (absl::StartsWith(answer, kCannotWrite))
      return absl::InvalidArgumentError(absl::StrCat(member, " ", answer));
    if (absl::StartsWith(answer, kUnseen))
      return NotShared(member, answer.substr(std::strlen(kUnseen)), self);
    const std::string theirs = answer.substr(std::strlen(kSeen));
    paths.push_back(PathOf(out, theirs));
    if (!Sees(out, theirs)) return NotShared(self, paths.back(), member);
  }
  return absl::OkStatus();
}

absl::Status AnswerSharedFolder(rpc::MasterClient& master, const std::string& out,
                                absl::Time deadline) {
  const rpc::Assignment& assignment = master.assignment();
  const std::string key = AnswerKey(rpc::MemberName(assignment.role, assignment.rank));
  ASSIGN_OR_RETURN(const std::string asked, master.store().Get(kQuestion, deadline));
  if (!Sees(out, asked)) return master.store().Set(key, absl::StrCat(kUnseen, PathOf(out, asked)));
  const std::string nonce = Nonce();
  const absl::Status written = WriteNonce(out, nonce);
  return master.store().Set(
      key, written.ok() ? absl::StrCat(kSeen, nonce) : std::string(written.message()));
}

absl::Status TellLoaded(rpc::MasterClient& master) { return master.store().Set(kLoaded, "1"); }

ServerStart::ServerStart(rpc::MasterClient& master, rpc::Server& server, std::string out)
    : thread_([&master, &server, out = std::move(out)] {
        // The end of the job ends both waits.
        if (AnswerSharedFolder(master, out, absl::InfiniteFuture()).ok() &&
            master.store().Get(kLoaded, absl::InfiniteFuture()).ok())
          server.SetReady();
      }) {}

ReadyWatch::ReadyWatch(std::function<bool()> is_ready, rpc::Server& server)
    : thread_([this, is_ready = std::move(is_ready), &server] {
        while (!stopping_ && !is_ready()) absl::SleepFor(absl::Milliseconds(50));
        if (!stopping_) server.SetReady();
      }) {}

ReadyWatch::~ReadyWatch() {
  stopping_ = true;
  thread_.join();
}

}  // namespace tandem::cli
