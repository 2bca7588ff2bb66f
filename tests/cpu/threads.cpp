// What the pool's threads owe to the process: errors, signals, forks and floating point. Prints
// what went wrong and exits with 1.
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cfenv>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "bare_host.h"
#include "cpu/pool.h"

namespace {

std::atomic<bool> fork_now{false};
pid_t child = 0;
int in_child();

}  // namespace

// The pool's caller and one helper.
int processors() { return 2; }

// The pool starts its threads with its mutex locked, so that a fork here is one at the worst time.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*start)(void*), void* argument) {
  if (fork_now.exchange(false)) {
    child = fork();
    if (child == 0) _exit(in_child());
  }
  static const auto next =
      reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  return next(thread, attributes, start, argument);
}

namespace {

using namespace mla;
using cpu::Scratch;

constexpr int64_t kLongEnough = 1'000'000;  // nanoseconds, so that the helper may join
constexpr int kSecondsOfAHang = 10;

int failures = 0;

void check(bool passed, const char* what) {
  if (passed) return;
  std::printf("FAILED: %s\n", what);
  ++failures;
}

// Runs one item on the caller and one on the helper, each of which waits for the other.
template <class Body>
Status on_helper(const Body& body) {
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<int> arrived{0};
  return cpu::parallel(2, kLongEnough, [&](int64_t, const Scratch&) {
    ++arrived;
    while (arrived < 2) std::this_thread::yield();
    if (std::this_thread::get_id() != caller) body();
  });
}

// Has the thread take subnormal numbers for zero.
void flush_subnormals() {
#if defined(__x86_64__)
  __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);
#elif defined(__aarch64__)
  uint64_t mode;
  asm volatile("mrs %0, fpcr" : "=r"(mode));
  asm volatile("msr fpcr, %0" ::"r"(mode | 1 << 24));
#endif
}

// The whole work is done in a child that was forked while its parent held the mutex.
int in_child() {
  sigset_t none;
  sigemptyset(&none);
  pthread_sigmask(SIG_SETMASK, &none, nullptr);  // the pool starts threads with all of them blocked
  alarm(kSecondsOfAHang);
  std::atomic<int> ran{0};
  const Status status = on_helper([&] { ++ran; });
  return status.ok() && ran == 1 ? 0 : 1;
}

void fork_while_threads_start() {
  fork_now = true;
  check(cpu::start_threads().ok(), "threads start");
  check(child > 0, "a fork while threads start");
  int ended = 0;
  check(waitpid(child, &ended, 0) == child && WIFEXITED(ended) && WEXITSTATUS(ended) == 0,
        "a child that was forked while the pool was locked launches");
}

void error_of_the_helper() {
  const Status status = on_helper([] { throw std::runtime_error("of the helper"); });
  check(!status.ok() && std::string(last_error()).find("of the helper") != std::string::npos,
        "the error of a helper thread is the launch's");
  check(on_helper([] {}).ok(), "the next launch has no error");
}

void signals_of_the_helper() {
  sigset_t before, helper, after;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  sigemptyset(&helper);
  const Status status = on_helper([&] { pthread_sigmask(SIG_SETMASK, nullptr, &helper); });
  check(status.ok(), "a launch that asks for the helper's signals");
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGCHLD, SIGALRM}) {
    check(sigismember(&helper, signal) == 1, "a helper thread gets no signal");
    check(sigismember(&after, signal) == sigismember(&before, signal),
          "the caller's signals are as before");
  }
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP}) {
    check(sigismember(&helper, fault) == 0, "a helper's fault reaches the process's handler");
  }
}

// Items round to nearest and keep subnormal numbers, whatever their caller does.
void float_mode() {
  const volatile float one = 1, tiny = 1e-10f, subnormal = 1e-40f;
  const auto compute = [&] { return std::make_pair(one + tiny > 1, subnormal * one > 0); };
  const auto nearest = compute();
  std::fesetround(FE_UPWARD);
  flush_subnormals();
  const auto callers = compute();
  std::atomic<int> changed{0};
  const Status status = cpu::parallel(2, 0, [&](int64_t, const Scratch&) {
    if (compute() != nearest) ++changed;
  });
  const bool kept = compute() == callers;
  std::fesetenv(FE_DFL_ENV);
  check(callers != nearest, "the caller has a mode of its own");
  check(status.ok() && changed == 0, "items run in the default mode");
  check(kept, "the caller keeps its mode");
}

}  // namespace

int main() {
  alarm(3 * kSecondsOfAHang);
  fork_while_threads_start();
  error_of_the_helper();
  signals_of_the_helper();
  float_mode();
  return failures == 0 ? 0 : 1;
}
