// A wall clock that a test can set, for one process: preloaded, it adds what the file of FAKE_CLOCK
// says, seconds as a 64-bit number. The monotonic clock stays, as it does when somebody sets a
// machine's clock.
//
// Who waits until a time of the wall clock waits as the kernel would let him: a clock that is set
// back makes the wait longer, one that is set forward ends it. So waits go on in slices, and the
// clock is read after each.
//
// Nothing here calls the C library's own clock: an allocator may ask for the time before the loader
// is done.

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <threads.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <ctime>

namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kSlice = 100'000'000;
// An older time is one of the monotonic clock: pthread_cond_timedwait does not say which clock it
// means.
constexpr int64_t kWallClockFrom_s = 1'000'000'000;

const volatile int64_t* offset_s = nullptr;

__attribute__((constructor)) void Open() {
  const char* path = std::getenv("FAKE_CLOCK");
  const int file = path == nullptr ? -1 : open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  void* mapped = mmap(nullptr, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (mapped != MAP_FAILED) offset_s = static_cast<const volatile int64_t*>(mapped);
}

int Read(clockid_t clock, timespec* now) {
  const int code = static_cast<int>(syscall(SYS_clock_gettime, clock, now));
  if (code == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) &&
      offset_s != nullptr) {
    now->tv_sec += *offset_s;
  }
  return code;
}

int64_t Nanoseconds(const timespec& time) { return time.tv_sec * kSecond + time.tv_nsec; }

int WaitUntil(pthread_cond_t* condition, pthread_mutex_t* mutex, const timespec* end) {
  if (end->tv_sec < kWallClockFrom_s) {
    return pthread_cond_clockwait(condition, mutex, CLOCK_MONOTONIC, end);
  }
  while (true) {
    timespec now;
    Read(CLOCK_REALTIME, &now);
    const int64_t left = Nanoseconds(*end) - Nanoseconds(now);
    if (left <= 0) return ETIMEDOUT;
    Read(CLOCK_MONOTONIC, &now);
    const int64_t until = Nanoseconds(now) + (left < kSlice ? left : kSlice);
    const timespec slice = {until / kSecond, until % kSecond};
    const int code = pthread_cond_clockwait(condition, mutex, CLOCK_MONOTONIC, &slice);
    if (code != ETIMEDOUT) return code;
  }
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* now) noexcept { return Read(clock, now); }

int gettimeofday(timeval* now, void*) noexcept {
  timespec read;
  Read(CLOCK_REALTIME, &read);
  *now = {read.tv_sec, read.tv_nsec / 1000};
  return 0;
}

time_t time(time_t* now) noexcept {
  timespec read;
  Read(CLOCK_REALTIME, &read);
  if (now != nullptr) *now = read.tv_sec;
  return read.tv_sec;
}

int timespec_get(timespec* now, int base) noexcept {
  return Read(CLOCK_REALTIME, now) == 0 ? base : 0;
}

int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex, const timespec* end) {
  return WaitUntil(condition, mutex, end);
}

// glibc's threads.h wraps the types of pthread.h.
int cnd_timedwait(cnd_t* condition, mtx_t* mutex, const timespec* end) {
  const int code = WaitUntil(reinterpret_cast<pthread_cond_t*>(condition),
                             reinterpret_cast<pthread_mutex_t*>(mutex), end);
  return code == 0 ? thrd_success : code == ETIMEDOUT ? thrd_timedout : thrd_error;
}
}
