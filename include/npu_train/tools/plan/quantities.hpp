/// Speeds and times as people write them, on the command line and in files of measured points.
#pragma once

#include <string>

namespace npu_train {

/// What connects two ranks, in each direction.
struct LinkSpeed {
  double bytes_per_second = 0;
  double latency = 0;  ///< seconds for each message, in addition to its bytes
};

/// "25GB/s", "100 Mbit/s", "1.5GiB/s" in bytes per second: a number and B/s, KB/s, MB/s, GB/s, TB/s, KiB/s, MiB/s, GiB/s, bit/s, Kbit/s,
/// Mbit/s or Gbit/s. Error(Usage) names `where` for other text and for what is not positive.
double bytes_per_second_of(const char* where, const std::string& text);
/// "5us", "0.35 s", "12ms" in seconds: a number and ns, us, ms or s. Error(Usage) for other text and for negative numbers.
double seconds_of(const char* where, const std::string& text);
/// "300TFLOPs" in operations per second: a number and MFLOPs, GFLOPs, TFLOPs or PFLOPs, of which each second has as many. Error(Usage) for
/// other text and for what is not positive.
double flops_of(const char* where, const std::string& text);
/// "25GB/s,5us", or without a latency "25GB/s". Error(Usage) as above.
LinkSpeed link_of(const char* where, const std::string& text);

/// For people: "12.5 MB/s", "85 ms", "1.2 TFLOPs".
std::string rate_text(double bytes_per_second);
std::string seconds_text(double seconds);
std::string flops_text(double per_second);

}  // namespace npu_train
