// UseMonotonicWaits - makes librdkafka's waits independent of the wall clock.
// Why: "all waiting is by the monotonic clock" must hold for the libraries, too. A machine's clock is
//   set back when it was ahead, and nobody expects that to stop deliveries for as long.
// How: the program's own cnd_timedwait comes before the C library's; calling this function is what
//   links it in.
// Thread: any.
// Source: C11 7.26.3.5; librdkafka 2.0.2, src/tinycthread_extra.c.
#pragma once

namespace walpost::kafka {

void UseMonotonicWaits();

}  // namespace walpost::kafka
