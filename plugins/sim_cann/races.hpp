// SIM_CANN_CHECK=races: what a missing synchronisation leaves without an order. Tasks and waits are followed when they are put into
// streams, so a race is found whether or not it changes a value.
#pragma once

#include "streams.hpp"

namespace sim_cann {

/// A task accesses memory. `task` is the next one of the stream.
void check_task(const Stream& stream, const std::string& task, const Accesses& accesses);
/// The host accesses memory of a device itself.
void check_host(const char* function, const Accesses& accesses);
/// What is known to be over after all tasks of the stream, so far.
Clock clock_of(const Stream& stream);
/// Tasks that are put into the stream from now on begin after what the clock has.
void wait_for_clock(const Stream& stream, const Clock& clock);
/// The host knows that all of the clock is over.
void host_waited(const Clock& clock);
/// The memory is freed or allocated: nothing of it is pending.
void forget(const void* start, size_t bytes);
/// True if a fault is an access that the check has made impossible: it is possible now. A race is reported unless a stream runs the access.
bool host_access_is_checked(const void* address, bool of_host);

}  // namespace sim_cann
