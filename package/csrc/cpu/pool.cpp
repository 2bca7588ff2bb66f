#include "cpu/pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "common/arithmetic.h"
#include "common/text.h"
#include "cpu/isa/isa.h"

namespace mla::cpu {
namespace {

constexpr const char* kThreadsVariable = "MLA_KERNELS_CPU_THREADS";
constexpr int64_t kWakeNanoseconds = 10'000;           // of work that a woken thread must have
constexpr auto kSpin = std::chrono::microseconds(50);  // before sleeping
constexpr size_t kAlignment = 64;

int affinity_threads() {
  for (size_t cpus = 1024; cpus <= size_t{1} << 20; cpus *= 2) {
    const size_t bytes = CPU_ALLOC_SIZE(cpus);
    std::vector<unsigned long> mask(bytes / sizeof(unsigned long));
    cpu_set_t* set = reinterpret_cast<cpu_set_t*>(mask.data());
    if (sched_getaffinity(0, bytes, set) == 0) return std::max(1, CPU_COUNT_S(bytes, set));
  }
  return 1;
}

// Returns the value of the variable, 0 where it is unset, and -1 where it is not a positive number.
int64_t requested_threads() {
  const char* value = std::getenv(kThreadsVariable);
  if (value == nullptr || *value == '\0') return 0;
  char* end = nullptr;
  const long long number = std::strtoll(value, &end, 10);
  return *end == '\0' && number >= 1 ? number : -1;
}

int thread_count() {
  const int64_t available = affinity_threads();
  const int64_t requested = requested_threads();
  return static_cast<int>(requested > 0 ? std::min(available, requested) : available);
}

class ThreadScratch {
 public:
  ThreadScratch() {
    const Isa& isa = active_isa();
    const size_t isa_bytes = round_up(isa.scratch_bytes, kAlignment);
    memory_.reset(static_cast<std::byte*>(::operator new(
        isa_bytes + sizeof(float) * kMaxRows * kMaxDV, std::align_val_t{kAlignment})));
    scratch_ = {memory_.get(), reinterpret_cast<float*>(memory_.get() + isa_bytes)};
    if (isa.prepare_thread != nullptr) isa.prepare_thread();
  }

  const Scratch& get() const { return scratch_; }

 private:
  struct Release {
    void operator()(std::byte* memory) const {
      ::operator delete(memory, std::align_val_t{kAlignment});
    }
  };

  std::unique_ptr<std::byte, Release> memory_;
  Scratch scratch_;
};

const Scratch& thread_scratch() {
  thread_local const ThreadScratch scratch;
  return scratch.get();
}

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

template <class Condition>
bool spin_until(const Condition& condition) {
  const auto deadline = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 32; ++i) {
      if (condition()) return true;
      pause();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return condition();
}

// While it lives, the thread rounds to nearest and keeps subnormal numbers, whatever it did before:
// callers may set this for themselves, and results do not depend on which thread computes them.
class DefaultFloatMode {
 public:
  DefaultFloatMode() : before_(get()) { set(kDefault); }
  ~DefaultFloatMode() { set(before_); }
  DefaultFloatMode(const DefaultFloatMode&) = delete;
  DefaultFloatMode& operator=(const DefaultFloatMode&) = delete;

 private:
#if defined(__x86_64__)
  using Register = unsigned;
  static constexpr Register kDefault = 0x1f80;  // no exception traps
  static Register get() { return __builtin_ia32_stmxcsr(); }
  static void set(Register value) { __builtin_ia32_ldmxcsr(value); }
#elif defined(__aarch64__)
  using Register = uint64_t;
  static constexpr Register kDefault = 0;
  static Register get() {
    Register value;
    asm volatile("mrs %0, fpcr" : "=r"(value));
    return value;
  }
  static void set(Register value) { asm volatile("msr fpcr, %0" ::"r"(value)); }
#endif

  const Register before_;
};

struct Job {
  Work work;
  const void* context;
  int64_t items;
  int seats;  // helpers that may still join
  std::atomic<int64_t> next{0};
  std::atomic<int> helpers{0};
  std::atomic<bool> failed{false};
  std::exception_ptr error = nullptr;  // is written by whoever sets failed first
  Job* following = nullptr;

  bool open() const { return seats > 0 && next.load(std::memory_order_relaxed) < items; }

  void drain() noexcept {
    try {
      const Scratch& scratch = thread_scratch();
      const DefaultFloatMode mode;
      for (int64_t i = next.fetch_add(1, std::memory_order_relaxed); i < items;
           i = next.fetch_add(1, std::memory_order_relaxed)) {
        work(context, i, scratch);
      }
    } catch (...) {
      next.store(items, std::memory_order_relaxed);
      if (!failed.exchange(true)) error = std::current_exception();
    }
  }
};

// The threads sleep until there are jobs. Each job's caller takes part in it and waits for its
// helpers. A pool is never destroyed, because its threads outlive main.
class Pool {
 public:
  explicit Pool(int threads) : threads_(threads) {}

  int threads() const { return threads_; }

  void start() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (started_) return;
    started_ = true;
    sigset_t all;
    sigset_t previous;
    // The process's own threads handle signals, but a fault is handled where it happens: one that
    // is blocked there ends the process without the process's handler.
    sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP}) sigdelset(&all, fault);
    pthread_sigmask(SIG_SETMASK, &all, &previous);
    try {
      for (int i = 1; i < threads_; ++i) std::thread([this] { serve(); }).detach();
    } catch (const std::exception&) {
      // The system has a limit; the threads that started do the work.
    }
    pthread_sigmask(SIG_SETMASK, &previous, nullptr);
  }

  void run(Job& job) {
    const int woken = post(job);
    for (int i = 0; i < woken; ++i) wake_.notify_one();
    job.drain();
    withdraw(job);
  }

 private:
  int post(Job& job) {
    const std::lock_guard<std::mutex> lock(mutex_);
    job.following = jobs_;
    jobs_ = &job;
    posted_.fetch_add(1, std::memory_order_release);
    return std::clamp(job.seats - spinning_, 0, sleeping_);
  }

  void withdraw(Job& job) {
    std::unique_lock<std::mutex> lock(mutex_);
    Job** link = &jobs_;
    while (*link != &job) link = &(*link)->following;
    *link = job.following;
    const auto finished = [&job] { return job.helpers.load(std::memory_order_acquire) == 0; };
    if (finished()) return;
    lock.unlock();
    if (spin_until(finished)) return;
    lock.lock();
    done_.wait(lock, finished);
  }

  Job* open_job() const {
    Job* job = jobs_;
    while (job != nullptr && !job->open()) job = job->following;
    return job;
  }

  [[noreturn]] void serve() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      Job& job = await(lock);
      --job.seats;
      job.helpers.fetch_add(1, std::memory_order_relaxed);
      lock.unlock();
      job.drain();
      lock.lock();
      // The caller may destroy the job once it has no helpers.
      if (job.helpers.fetch_sub(1, std::memory_order_release) == 1) done_.notify_all();
    }
  }

  Job& await(std::unique_lock<std::mutex>& lock) {
    Job* job = open_job();
    if (job != nullptr) return *job;
    const uint32_t seen = posted_.load(std::memory_order_relaxed);
    ++spinning_;
    lock.unlock();
    spin_until([&] { return posted_.load(std::memory_order_acquire) != seen; });
    lock.lock();
    --spinning_;
    while ((job = open_job()) == nullptr) {
      ++sleeping_;
      wake_.wait(lock);
      --sleeping_;
    }
    return *job;
  }

  const int threads_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  bool started_ = false;
  Job* jobs_ = nullptr;
  int spinning_ = 0;
  int sleeping_ = 0;
  std::atomic<uint32_t> posted_{0};
};

std::atomic<Pool*> current{nullptr};

// A forked child has none of the threads and perhaps a locked mutex, so that it makes a new pool.
const int fork_handler =
    pthread_atfork(nullptr, nullptr, [] { current.store(nullptr, std::memory_order_relaxed); });

Pool& pool() {
  Pool* existing = current.load(std::memory_order_acquire);
  if (existing != nullptr) return *existing;
  auto created = std::make_unique<Pool>(thread_count());
  if (current.compare_exchange_strong(existing, created.get())) return *created.release();
  return *existing;
}

Status describe(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& exception) {
    return Status::error(MLA_INTERNAL, "thread", exception.what(), "no exception");
  } catch (...) {
    return Status::error(MLA_INTERNAL, "thread", "an unknown exception", "no exception");
  }
}

}  // namespace

Status check_environment() {
  static const bool threads_valid = requested_threads() >= 0;
  if (!threads_valid) {
    const char* value = std::getenv(kThreadsVariable);
    return Status::error(MLA_RANGE, kThreadsVariable, value == nullptr ? "" : value,
                         "a positive number of threads");
  }
  if (refused_isa() != nullptr) {
    std::string names;
    for (const Isa* isa : supported_isas()) {
      names += std::string(names.empty() ? "one of " : ", ") + isa->name;
    }
    return Status::error(MLA_UNSUPPORTED, "MLA_KERNELS_CPU_ISA", refused_isa(), names);
  }
  return {};
}

Status start_threads() {
  if (fork_handler != 0) {
    return Status::error(MLA_INTERNAL, "thread", "no fork handler", "memory for a fork handler");
  }
  Pool& threads = pool();
  if (threads.threads() > 1) threads.start();
  return {};
}

Status run(int64_t items, int64_t nanoseconds, Work work, const void* context) {
  if (items <= 0) return {};
  const int64_t worthwhile = std::min(items - 1, nanoseconds / kWakeNanoseconds);
  const int64_t seats = worthwhile > 0 ? std::min<int64_t>(worthwhile, pool().threads() - 1) : 0;
  Job job{work, context, items, static_cast<int>(seats)};
  if (seats == 0) {
    job.drain();
  } else {
    MLA_TRY(start_threads());
    pool().run(job);
  }
  return job.failed ? describe(job.error) : Status();
}

}  // namespace mla::cpu
