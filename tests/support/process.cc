#include "tests/support/process.h"

#include <algorithm>
#include <arpa/inet.h>
#include <atomic>
#include <charconv>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <map>
#include <netinet/in.h>
#include <sstream>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/clock.h"
#include "tests/support/loopback.h"

namespace tandem::support {

namespace {

std::string ReadWhole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string NextOutput(const std::string& folder) {
  static std::atomic<int> number{0};
  return absl::StrCat(folder, "/process-", number++);
}

// The number of files in a folder, and when the last one changed.
using FolderState = std::pair<size_t, std::filesystem::file_time_type>;

FolderState StateOf(const std::string& folder) {
  FolderState state{0, std::filesystem::file_time_type::min()};
  std::error_code none, gone;  // a file may go while it is looked at
  for (std::filesystem::recursive_directory_iterator entry(folder, none), end; entry != end;
       entry.increment(none)) {
    const auto time = entry->last_write_time(gone);
    ++state.first;
    if (!gone) state.second = std::max(state.second, time);
  }
  return state;
}

[[noreturn]] void Become(const std::vector<std::string>& arguments, const std::string& output) {
  const int out = open((output + ".out").c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600);
  const int err = open((output + ".err").c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600);
  const int in = open("/dev/null", O_RDONLY);
  dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  _exit(126);
}

// A process as /proc/PID/stat describes it.
struct ProcessState {
  char state = 'Z';
  pid_t parent = 0;
  double cpu_seconds = 0;  // including reaped children
};

ProcessState StateOfProcess(const std::string& folder) {
  const std::string stat = ReadWhole(folder + "/stat");
  const size_t name_end = stat.rfind(')');  // the name before it may hold anything
  ProcessState found;
  if (name_end == std::string::npos) return found;
  std::istringstream fields(stat.substr(name_end + 1));
  fields >> found.state >> found.parent;
  std::string skipped;
  for (int field = 5; field < 14; ++field) fields >> skipped;
  for (int field = 14; field < 18;
       ++field) {  // user and kernel mode, of the process and of its reaped children
    double ticks = 0;
    fields >> ticks;
    found.cpu_seconds += ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
  }
  return found;
}

// The parent's pid, or 0 for a process that is gone or waits to be reaped.
pid_t ParentOfRunning(const std::string& folder) {
  const ProcessState found = StateOfProcess(folder);
  return found.state == 'Z' || found.state == 'X' ? 0 : found.parent;
}

// The CPU time of a process and all its descendants.
double CpuSeconds(pid_t root) {
  std::map<pid_t, ProcessState> states;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    pid_t pid = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), pid).ec == std::errc())
      states[pid] = StateOfProcess(entry.path());
  }
  double seconds = 0;
  for (const auto& [pid, state] : states) {
    pid_t ancestor = pid;
    while (ancestor != root && states.count(ancestor) > 0 && states[ancestor].parent != ancestor)
      ancestor = states[ancestor].parent;
    if (ancestor == root) seconds += state.cpu_seconds;
  }
  return seconds;
}

}  // namespace

std::vector<std::string> Ended::ErrorLines() const {
  std::vector<std::string> lines;
  std::istringstream text(err);
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

Process::Process(const std::string& folder, const std::vector<std::string>& arguments)
    : folder_(folder), output_(NextOutput(folder)), started_(Now()) {
  pid_ = fork();
  if (pid_ == 0) Become(arguments, output_);
  TANDEM_CHECK_GT(pid_, 0);
}

Process::~Process() {
  if (!reaped_) Wait(0);
}

bool Process::HasEnded() const {
  TANDEM_CHECK(!reaped_);
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == pid_;
}

Ended Process::Wait(double deadline_seconds) {
  const double deadline = Now() + deadline_seconds;
  return WaitWhile([deadline] { return Now() <= deadline; });
}

Ended Process::WaitWhileItWorks() {
  FolderState files = StateOf(folder_);
  double looked = Now(), worked = looked, cpu = CpuSeconds(pid_);
  return WaitWhile([&] {
    const double now = Now();
    if (now - looked < 1) return true;
    looked = now;
    const FolderState files_now = StateOf(folder_);
    const double cpu_now = CpuSeconds(pid_);
    if (files_now != files || cpu_now >= cpu + 1) {
      files = files_now;
      cpu = cpu_now;
      worked = now;
    }
    return now - worked <= kPatienceSeconds;
  });
}

template <class HasTime>
Ended Process::WaitWhile(const HasTime& has_time) {
  TANDEM_CHECK(!reaped_);
  Ended ended;
  int status = 0;
  while (waitpid(pid_, &status, WNOHANG) != pid_ && !ended.timed_out) {
    ended.timed_out = !has_time();
    if (!ended.timed_out) SleepBriefly();
  }
  if (ended.timed_out) {
    kill(pid_, SIGKILL);
    waitpid(pid_, &status, 0);
  }
  reaped_ = true;
  ended.seconds = Now() - started_;
  ended.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  ended.out = ReadWhole(output_ + ".out");
  ended.err = ReadWhole(output_ + ".err");
  return ended;
}

bool HasPending(pid_t pid, int signal) {
  const std::string status = ReadWhole(absl::StrCat("/proc/", pid, "/status"));
  const std::string field = "ShdPnd:";
  const size_t at = status.find(field);
  if (at == std::string::npos) return false;
  return (std::strtoull(status.c_str() + at + field.size(), nullptr, 16) >> (signal - 1) & 1) != 0;
}

bool HasProc() { return std::filesystem::exists("/proc/self/stat"); }

std::string RunningProcess::ValueOf(const std::string& flag) const {
  for (size_t i = 0; i + 1 < arguments.size(); ++i) {
    if (arguments[i] == flag) return arguments[i + 1];
  }
  return "";
}

std::vector<RunningProcess> ProcessesMentioning(const std::string& text) {
  std::vector<RunningProcess> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    RunningProcess process;
    const auto parsed = std::from_chars(name.data(), name.data() + name.size(), process.pid);
    if (parsed.ptr != name.data() + name.size() || process.pid == getpid()) continue;
    const std::string command = ReadWhole(entry.path() / "cmdline");
    if (command.find(text) == std::string::npos) continue;
    process.parent = ParentOfRunning(entry.path());
    if (process.parent == 0) continue;
    std::istringstream arguments(command);
    for (std::string argument; std::getline(arguments, argument, '\0');)
      process.arguments.push_back(argument);
    found.push_back(std::move(process));
  }
  return found;
}

std::vector<std::string> SharedMemoryFiles() {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", error)) {
    const std::string name = entry.path().filename();
    if (name.rfind("tandem-", 0) == 0) names.push_back(name);
  }
  return names;
}

ListeningPort::ListeningPort() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof address;
  TANDEM_CHECK_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address), size), 0);
  TANDEM_CHECK_EQ(listen(socket_, 8), 0);
  TANDEM_CHECK_EQ(getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size), 0);
  port_ = ntohs(address.sin_port);
}

ListeningPort::~ListeningPort() { close(socket_); }

std::string ListeningPort::address() const { return absl::StrCat("127.0.0.1:", port_); }

bool SomebodyListens(const std::string& address) {
  const size_t colon = address.rfind(':');
  TANDEM_CHECK(colon != std::string::npos) << address;
  const sockaddr_in target = Loopback(std::stoi(address.substr(colon + 1)));
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool connected =
      connect(fd, reinterpret_cast<const sockaddr*>(&target), sizeof target) == 0;
  close(fd);
  return connected;
}

void SleepBriefly() { std::this_thread::sleep_for(std::chrono::milliseconds(10)); }

double Now() { return MonotonicSeconds(); }

}  // namespace tandem::support
