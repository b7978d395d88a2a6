// SIM_CANN_CHECK=races: finds accesses that no synchronisation orders. Tasks and waits are tracked when they are put into streams, so a
// race is found whether or not it changes a value.
#pragma once

#include "streams.hpp"

namespace sim_cann {

/// Checks the accesses of a task to memory. The task is the next one of the stream.
void check_task(const Stream& stream, const std::string& task, const Accesses& accesses);
/// Checks an access of the host to device memory.
void check_host(const char* function, const Accesses& accesses);
/// Returns the tasks that are known to have ended as soon as all current tasks of the stream have ended.
Clock clock_of(const Stream& stream);
/// Notes that tasks which are put into the stream from now on begin after the end of the tasks of the clock.
void wait_for_clock(const Stream& stream, const Clock& clock);
/// Notes that the host knows all tasks of the clock to have ended.
void host_waited(const Clock& clock);
/// Drops the recorded accesses to memory that is freed or allocated.
void forget(const void* start, size_t bytes);
/// Handles a fault at `address`. Returns false unless the address is in a block of page-locked memory; otherwise makes the block
/// accessible. Reports a race if a pending copy uses the address and the host made the access (`of_host`), not a stream.
bool host_access_is_checked(const void* address, bool of_host);

}  // namespace sim_cann
