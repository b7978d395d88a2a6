// Checks whether a server for a single user of this machine may answer a request.
#pragma once

#include <string>
#include <string_view>

namespace npu_train::cli {

/// Whether the header Host names this machine: 127.0.0.1 or localhost, with any port, since a tunnel may change it. A page of another site
/// whose name was made to resolve to 127.0.0.1 (DNS rebinding) sends the name of that site.
bool is_local_host(std::string_view host);

/// Whether two keys are equal, in a time that does not depend on where they differ.
bool is_same_key(std::string_view given, std::string_view key);

}  // namespace npu_train::cli
