/// The classes and functions that a pickle may name, and what to say of the others.
#pragma once

#include <string>
#include <string_view>

namespace npu_train::detail {

/// `global` is "module name", here and below.
bool is_known_global(std::string_view global);

/// The form in which a class of plain data is read: its items (Dict; Attributes: a dict of its attributes; List) or only a value.
enum class PlainForm { Dict, Attributes, List, Value };
bool is_plain_class(std::string_view global);
/// Of a class for which is_plain_class holds.
PlainForm plain_form(std::string_view global);

/// "FloatStorage" of "torch FloatStorage" and "torch.storage FloatStorage"; empty for what is no storage that we read.
std::string_view storage_of(std::string_view global);

/// The end of the message about a refused name: some are harmless tensors that can be saved in another way.
std::string refused_global_hint(std::string_view global);

/// For messages: what a file calls itself may hold anything.
std::string printable(std::string_view text);

}  // namespace npu_train::detail
