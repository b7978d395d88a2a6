/// Speeds and times as people write them on the command line and in files of measured steps.
#pragma once

#include <string>

namespace npu_train {

/// The link between two ranks; bandwidth per direction.
struct LinkSpeed {
  double bytes_per_second = 0;
  double latency = 0;  ///< seconds per message, in addition to the time of its bytes
};

/// Parses "25GB/s", "100 Mbit/s" or "1.5GiB/s" into bytes per second. Units: B/s, KB/s, MB/s, GB/s, TB/s, KiB/s, MiB/s, GiB/s, bit/s,
/// Kbit/s, Mbit/s and Gbit/s. Error(Usage), with `where`, for other text and for values that are not positive.
double bytes_per_second_of(const char* where, const std::string& text);
/// Parses "5us", "0.35 s" or "12ms" into seconds. Units: ns, us, ms and s. Error(Usage) for other text and for negative numbers.
double seconds_of(const char* where, const std::string& text);
/// Parses "300TFLOPs" into operations per second. Units: MFLOPs, GFLOPs, TFLOPs and PFLOPs, each per second. Error(Usage) for other text
/// and for values that are not positive.
double flops_of(const char* where, const std::string& text);
/// Parses "25GB/s,5us" or, without a latency, "25GB/s". Error(Usage) as for the functions above.
LinkSpeed link_of(const char* where, const std::string& text);

/// Formats a rate for people: "12.5 MB/s", "85 ms", "1.2 TFLOPs".
std::string rate_text(double bytes_per_second);
std::string seconds_text(double seconds);
std::string flops_text(double per_second);

}  // namespace npu_train
