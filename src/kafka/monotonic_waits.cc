// The waits of librdkafka end at times of the wall clock: it calls cnd_timedwait, which knows no other.
// A clock that is set back by an hour makes every wait that has begun an hour longer: brokers are not
// connected to, questions are not answered, timers stand still. This definition comes before the C
// library's in the whole program, and waits for as long as the end lay ahead when the wait began.
#include "kafka/monotonic_waits.h"

#include <pthread.h>
#include <threads.h>

#include <cerrno>
#include <cstdint>
#include <ctime>

namespace walpost::kafka {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

std::int64_t Now(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return now.tv_sec * kSecond + now.tv_nsec;
}

}  // namespace

void UseMonotonicWaits() {}

}  // namespace walpost::kafka

// The C library's cnd_t and mtx_t are its pthread_cond_t and pthread_mutex_t under another name.
static_assert(sizeof(cnd_t) == sizeof(pthread_cond_t) && alignof(cnd_t) == alignof(pthread_cond_t));
static_assert(sizeof(mtx_t) <= sizeof(pthread_mutex_t) &&
              alignof(mtx_t) == alignof(pthread_mutex_t));

extern "C" int cnd_timedwait(cnd_t* condition, mtx_t* mutex, const timespec* end) {
  using walpost::kafka::kSecond;
  const std::int64_t left =
      end->tv_sec * kSecond + end->tv_nsec - walpost::kafka::Now(CLOCK_REALTIME);
  const std::int64_t until = walpost::kafka::Now(CLOCK_MONOTONIC) + (left > 0 ? left : 0);
  const timespec monotonic{until / kSecond, until % kSecond};
  const int code = pthread_cond_clockwait(reinterpret_cast<pthread_cond_t*>(condition),
                                          reinterpret_cast<pthread_mutex_t*>(mutex),
                                          CLOCK_MONOTONIC, &monotonic);
  return code == 0 ? thrd_success : code == ETIMEDOUT ? thrd_timedout : thrd_error;
}
