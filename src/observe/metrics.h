// ProcessMetrics - what /proc says of this process, under the names every Prometheus client uses.
// Thread: any.
// Errors: a value that cannot be read is zero.
// Source: proc(5).
#pragma once

namespace walpost::observe {

struct ProcessMetrics {
  double cpu_seconds = 0;
  double resident_bytes = 0;
  double resident_peak_bytes = 0;
  double virtual_bytes = 0;
  double open_fds = 0;
  double max_fds = 0;
  double start_time_seconds = 0;
  double threads = 0;
};

ProcessMetrics ReadProcessMetrics();

}  // namespace walpost::observe
