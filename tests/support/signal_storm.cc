// Preloaded into a program: sends handled signals, as users and profilers do, for as long as the
// program runs.
// The process gets a signal every millisecond, whose handler ignores alternate stacks. Each thread
// gets a profiler's signal, whose handler asks for one.
// Appends a line to the file SIGNAL_STORM_LOG once both signals have been handled often.
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace {

constexpr int kOften = 20;

std::atomic<int> to_process = 0, to_threads = 0;

// A handler's frame with some work in it: overwrites the memory below the stack pointer.
void Scribble(std::atomic<int>& count) {
  volatile char frame[2048];
  for (size_t i = 0; i < sizeof frame; ++i) frame[i] = static_cast<char>(0xAB);
  ++count;
}

void OnProcessSignal(int) { Scribble(to_process); }
void OnThreadSignal(int) { Scribble(to_threads); }

void SignalEachThread() {
  DIR* threads = opendir("/proc/self/task");
  if (threads == nullptr) return;
  while (const dirent* entry = readdir(threads)) {
    const int thread = std::atoi(entry->d_name);
    if (thread > 0) syscall(SYS_tgkill, getpid(), thread, SIGPROF);
  }
  closedir(threads);
}

void* Storm(void*) {
  sigset_t others;  // the program's own threads take what is sent to the process
  sigemptyset(&others);
  sigaddset(&others, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &others, nullptr);
  const timespec millisecond{0, 1'000'000};
  bool told = false;
  while (true) {
    nanosleep(&millisecond, nullptr);
    kill(getpid(), SIGUSR1);
    SignalEachThread();
    if (told || to_process < kOften || to_threads < kOften) continue;
    told = true;
    const char* log = std::getenv("SIGNAL_STORM_LOG");
    const int file = log != nullptr ? open(log, O_CREAT | O_WRONLY | O_APPEND, 0600) : -1;
    if (file < 0 || write(file, "stormed\n", 8) != 8) _exit(99);
    close(file);
  }
  return nullptr;
}

[[gnu::constructor]] void Begin() {
  struct sigaction action {};
  action.sa_handler = OnProcessSignal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGUSR1, &action, nullptr);
  action.sa_handler = OnThreadSignal;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  sigaction(SIGPROF, &action, nullptr);
  pthread_t thread;
  pthread_create(&thread, nullptr, Storm, nullptr);
}

}  // namespace
