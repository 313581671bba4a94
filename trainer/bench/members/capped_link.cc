#include "trainer/bench/members/capped_link.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <sched.h>
#include <spawn.h>
#include <sstream>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"

extern char** environ;

namespace tandem::bench {

namespace {

constexpr char kCable[] = "cable0";
constexpr absl::Duration kPatience = absl::Seconds(20);  // for a program

// Runs a program with its words, which hold no blanks. Its output goes nowhere.
absl::Status Run(const std::string& line) {
  std::vector<std::string> words = absl::StrSplit(line, ' ');
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (const int fd : {1, 2})
    posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_WRONLY, 0);
  pid_t child = -1;
  const int error =
      posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0)
    return absl::UnavailableError(absl::StrCat("no program ", words[0], ": ", strerror(error)));
  int status = -1;
  const absl::Time deadline = absl::Now() + kPatience;
  for (pid_t ended = 0; ended == 0 || (ended < 0 && errno == EINTR);) {
    ended = waitpid(child, &status, WNOHANG);
    if (ended != 0) continue;
    if (absl::Now() > deadline) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      return absl::UnavailableError(absl::StrCat("\"", line, "\" did not end"));
    }
    absl::SleepFor(absl::Milliseconds(1));
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("\"", line, "\" failed"));
}

absl::Status RunAll(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) RETURN_IF_ERROR(Run(line));
  return absl::OkStatus();
}

absl::Status EnterNewNamespace() {
  if (unshare(CLONE_NEWNET) == 0) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("no right to make network namespaces: ", std::strerror(errno)));
}

// The largest packet of a cable, which has to fit the bucket.
int PacketBytes(double bits_per_second) {
  return static_cast<int>(std::clamp(0.75 * BurstBytes(bits_per_second), 1600.0, 65536.0));
}

// The queue holds all that connections have under way, so nothing is lost.
std::string TokenBucket(const char* device, double bits_per_second) {
  return absl::StrFormat("tc qdisc add dev %s root tbf rate %.0fbit burst %.0f limit 67108864",
                         device, bits_per_second, BurstBytes(bits_per_second));
}

}  // namespace

absl::StatusOr<double> RateOf(const std::string& text) {
  absl::string_view number = text;
  const double unit = absl::ConsumeSuffix(&number, "gbit")   ? 1e9
                      : absl::ConsumeSuffix(&number, "mbit") ? 1e6
                                                             : 0;
  double rate = 0;
  if (unit > 0 && absl::SimpleAtod(number, &rate) && rate * unit >= 1e6 && rate * unit <= 1e12)
    return rate * unit;
  return absl::InvalidArgumentError(
      absl::StrCat("--link is ", Printable(text),
                   "; allowed: shm, tcp, or a rate from 1mbit to 1000gbit, such as 100mbit"));
}

double BurstBytes(double bits_per_second) { return std::max(3200.0, bits_per_second / 8 * 1e-3); }

absl::Status CheckCappedLinks() {
  for (const char* program : {"ip -V", "tc -V", "nsenter -V"}) RETURN_IF_ERROR(Run(program));
  ASSIGN_OR_RETURN(const std::unique_ptr<Hub> hub, Hub::Make());
  return RunAll({absl::StrCat("ip link add ", kCable, " type veth peer name other"),
                 absl::StrCat("ip link set ", kCable, " gso_max_size ", PacketBytes(1e9)),
                 TokenBucket(kCable, 1e9), absl::StrCat("ip link set ", kCable, " master hub up")});
}

absl::StatusOr<std::unique_ptr<Hub>> Hub::Make() {
  const int outside = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
  if (outside < 0) return absl::UnavailableError("/proc shows no network namespace");
  if (absl::Status entered = EnterNewNamespace(); !entered.ok()) {
    close(outside);
    return entered;
  }
  std::unique_ptr<Hub> hub(new Hub(outside));  // goes back, if anything below fails
  // A bridge without an address of its own has a port's, and another one when that member ends.
  RETURN_IF_ERROR(
      RunAll({"ip link set lo up", "ip link add hub address 02:00:00:00:00:01 type bridge",
              absl::StrCat("ip address add ", host(), "/16 dev hub"), "ip link set hub up"}));
  return hub;
}

Hub::~Hub() {
  TANDEM_CHECK(setns(outside_, CLONE_NEWNET) == 0);
  close(outside_);
}

const std::string& Hub::host() {
  static const auto* const host = new std::string("10.77.0.1");
  return *host;
}

absl::StatusOr<std::string> JoinHub(double bits_per_second, int place) {
  const pid_t hub = getppid();
  const std::string port = absl::StrCat("port", place),
                    host = absl::StrCat("10.77.", 1 + place / 200, ".", 1 + place % 200),
                    in_hub = absl::StrCat("nsenter -t ", hub, " -n ");
  RETURN_IF_ERROR(EnterNewNamespace());
  RETURN_IF_ERROR(RunAll(
      {"ip link set lo up",
       absl::StrCat("ip link add ", kCable, " type veth peer name ", port, " netns ", hub),
       absl::StrCat("ip link set ", kCable, " gso_max_size ", PacketBytes(bits_per_second)),
       absl::StrCat("ip address add ", host, "/16 dev ", kCable),
       TokenBucket(kCable, bits_per_second), in_hub + TokenBucket(port.c_str(), bits_per_second),
       absl::StrCat(in_hub, "ip link set ", port, " master hub up"),
       absl::StrCat("ip link set ", kCable, " up")}));
  return host;
}

rpc::Traffic CableTraffic(int64_t pid) {
  std::ifstream devices(absl::StrCat("/proc/", pid, "/net/dev"));
  for (std::string line; std::getline(devices, line);) {
    std::istringstream fields(line);
    std::string name;
    rpc::Traffic traffic;
    if (!(fields >> name) || name != absl::StrCat(kCable, ":")) continue;
    std::string skipped;
    fields >> traffic.received;
    for (int i = 0; i < 7; ++i) fields >> skipped;
    fields >> traffic.sent;
    return traffic;
  }
  return {};
}

}  // namespace tandem::bench
