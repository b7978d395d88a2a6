#include "testing.hpp"

#include "io/tensors/unpickler.hpp"

#include <string>
#include <utility>
#include <vector>

#include "io/archives.hpp"

using namespace npu_train;
using namespace npu_train::testing;
using namespace std::string_literals;

namespace {

using npu_train::detail::PickleValue;
using npu_train::detail::Unpickler;

/// Returns a value as Python writes it.
std::string written(const PickleValue& value) {
  std::string out;
  const auto list = [&](const char* begin, const char* end, size_t step) {
    out = begin;
    for (size_t i = 0; i < value.items.size(); i += step) {
      out += (i == 0 ? "" : ", ") + written(*value.items[i]);
      if (step == 2) out += ": " + written(*value.items[i + 1]);
    }
    return out + end;
  };
  switch (value.kind) {
    case PickleValue::Kind::None:
      return "None";
    case PickleValue::Kind::Boolean:
      return value.integer == 1 ? "True" : value.integer == 0 ? "False" : "neither True nor False";
    case PickleValue::Kind::Integer:
      return std::to_string(value.integer);
    case PickleValue::Kind::Text:
      return "'" + std::string(value.text) + "'";
    case PickleValue::Kind::Tuple:
      return list("(", ")", 1);
    case PickleValue::Kind::List:
      return list("[", "]", 1);
    case PickleValue::Kind::Dict:
      return list(value.has_attributes ? "object{" : "{", "}", 2);
    case PickleValue::Kind::Global:
      return "<" + std::string(value.text) + ">";
    case PickleValue::Kind::Storage:
      return "storage of " + std::to_string(value.tensor->storage_size) + " at " + std::string(value.tensor->key);
    case PickleValue::Kind::Tensor:
      return "tensor at " + std::to_string(value.tensor->offset);
    case PickleValue::Kind::Mark:
      return "mark";
    case PickleValue::Kind::Other:
      return "other";
  }
  return "";
}

std::string unpickled(const std::string& pickled) {
  try {
    return written(Unpickler(pickled, "x.pt", ErrorKind::Data).result());
  } catch (const Error& e) {
    return e.what();
  }
}

struct PickledValue {
  const char* instruction;
  std::string ops;
  std::string value;
};

/// Reads each value between two others, to notice an instruction that takes too few or too many bytes or values.
void check_values(const std::vector<PickledValue>& rows) {
  for (const auto& row : rows) {
    CAPTURE(std::string(row.instruction));
    CHECK(unpickled(pickle("K\x05" + row.ops + "K\x07\x87")) == "(5, " + row.value + ", 7)");
  }
}

// Texts whose length does not fit a shorter length field. If only the beginning of one were taken, the rest would be read as instructions.
const std::string kTwoBytes(0x102, '.'), kThreeBytes(0x10002, '.'), kUnsigned(0x81, '.');

}  // namespace

TEST_CASE("every instruction that pushes a constant") {
  check_values({
      {"NONE", "N", "None"},
      {"NEWTRUE", "\x88", "True"},
      {"NEWFALSE", "\x89", "False"},
      {"BININT", "J\x01\x02\x03\x04", "67305985"},
      {"BININT", "J\xfe\xff\xff\xff", "-2"},
      {"BININT1", "K\xff", "255"},
      {"BININT2", "M\x01\xff", "65281"},
      {"LONG1", "\x8a\x00"s, "0"},
      {"LONG1", "\x8a\x02\x01\x80", "-32767"},
      {"LONG1", "\x8a\x02\x01\x7f", "32513"},
      {"LONG1", "\x8a\x08\x01\x02\x03\x04\x05\x06\x07\x80", "-9221395093405892095"},
      {"LONG1", "\x8a\x09\x01\x02\x03\x04\x05\x06\x07\x08\x09", "other"},
      {"LONG1", "\x8a\x81" + kUnsigned, "other"},
      {"LONG4", "\x8b" + raw<uint32_t>(3) + "\x01\x00\x01"s, "65537"},
      {"LONG4", "\x8b" + raw<uint32_t>(0x10002) + kThreeBytes, "other"},
      {"BINFLOAT", "G........", "other"},
      {"BINUNICODE", "X" + raw<uint32_t>(0x10002) + kThreeBytes, "'" + kThreeBytes + "'"},
      {"BINSTRING", "T" + raw<uint32_t>(0x10002) + kThreeBytes, "'" + kThreeBytes + "'"},
      {"SHORT_BINUNICODE", "\x8c\x81" + kUnsigned, "'" + kUnsigned + "'"},
      {"SHORT_BINSTRING", "U\x81" + kUnsigned, "'" + kUnsigned + "'"},
      {"BINUNICODE8", "\x8d" + raw<uint64_t>(0x10002) + kThreeBytes, "'" + kThreeBytes + "'"},
      {"BINBYTES", "B" + raw<uint32_t>(0x10002) + kThreeBytes, "other"},
      {"SHORT_BINBYTES", "C\x81" + kUnsigned, "other"},
      {"BINBYTES8", "\x8e" + raw<uint64_t>(0x10002) + kThreeBytes, "other"},
      {"FRAME, before a constant", "\x95........N", "None"},
      {"PROTO, before a constant", "\x80\x05N", "None"},
  });
  for (const char* version : {"\x02", "\x03", "\x04", "\x05"}) CHECK(unpickled("\x80"s + version + "N.") == "None");
  for (const char* version : {"\x01", "\x06", "\xff"}) CHECK(has(unpickled("\x80"s + version + "N."), "supported: 2 to 5"));
}

TEST_CASE("a length of eight bytes counts with all of them") {
  for (const char op : {'\x8d', '\x8e'}) {
    for (const uint64_t length : {uint64_t{1} << 32, uint64_t{1} << 63, ~uint64_t{0}})
      CHECK(has(unpickled(pickle(op + raw(length) + kTwoBytes)), "truncated"));
  }
}

TEST_CASE("every instruction of containers") {
  check_values({
      {"EMPTY_DICT", "}", "{}"},
      {"EMPTY_LIST", "]", "[]"},
      {"EMPTY_SET", "\x8f", "[]"},
      {"EMPTY_TUPLE", ")", "()"},
      {"TUPLE", "(NK\x01t", "(None, 1)"},
      {"TUPLE of nothing", "(t", "()"},
      {"TUPLE1", "K\x01\x85", "(1)"},
      {"TUPLE2", "K\x01K\x02\x86", "(1, 2)"},
      {"TUPLE3", "K\x01K\x02K\x03\x87", "(1, 2, 3)"},
      {"TUPLE up to the last mark", "((K\x01tK\x02t", "((1), 2)"},
      {"APPEND",
       "]K\x01"
       "aK\x02"
       "a",
       "[1, 2]"},
      {"APPENDS",
       "](K\x01K\x02"
       "e",
       "[1, 2]"},
      {"APPENDS of nothing", "](e", "[]"},
      {"ADDITEMS", "\x8f(K\x01K\x02\x90", "[1, 2]"},
      {"FROZENSET", "(K\x01K\x02\x91", "(1, 2)"},
      {"SETITEM", "}K\x01K\x02sK\x03K\x04s", "{1: 2, 3: 4}"},
      {"SETITEMS", "}(K\x01K\x02K\x03K\x04u", "{1: 2, 3: 4}"},
      {"SETITEMS of nothing", "}(u", "{}"},
      {"POP",
       "NK\x01"
       "0",
       "None"},
      {"POP of a mark", "N(0", "None"},
      {"POP_MARK",
       "N(K\x01K\x02"
       "1",
       "None"},
      {"DUP",
       "K\x01"
       "2\x86",
       "(1, 1)"},
  });
}

TEST_CASE("every instruction of the memo") {
  const std::string eight = "K\x08", nine = "K\x09", two_numbers = raw<uint32_t>(0x10002), low_bytes = raw<uint32_t>(2);
  check_values({
      {"BINPUT and BINGET", eight + "q\x81" + nine + "q\x01\x86h\x81\x86", "((8, 9), 8)"},
      {"LONG_BINPUT and LONG_BINGET", eight + "r" + two_numbers + nine + "r" + low_bytes + "\x86j" + two_numbers + "\x86", "((8, 9), 8)"},
      {"LONG_BINGET of BINPUT", eight + "q\x02" + nine + "\x86j" + low_bytes + "\x86", "((8, 9), 8)"},
      {"BINPUT in place of an earlier one", eight + "q\x02" + nine + "q\x02\x86h\x02\x86", "((8, 9), 9)"},
      {"MEMOIZE", eight + "\x94" + nine + "\x94\x86h\x00h\x01\x87"s, "((8, 9), 8, 9)"},
      {"MEMOIZE after BINPUT", eight + "q\x00"s + nine + "\x94\x86h\x01\x86", "((8, 9), 9)"},
  });
}

TEST_CASE("every instruction of names, calls and objects") {
  const std::string dict = "ccollections\nOrderedDict\n", object = "cargparse\nNamespace\n", items = "}K\x01K\x02s";
  const std::string storage = "(" + text_op("storage") + "ctorch\nFloatStorage\n" + text_op("0") + text_op("cpu") + "K\x06tQ";
  check_values({
      {"GLOBAL", dict, "<collections OrderedDict>"},
      {"STACK_GLOBAL",
       "\x8c\x0b"
       "collections\x8c\x0bOrderedDict\x93",
       "<collections OrderedDict>"},
      {"REDUCE", dict + ")R", "{}"},
      {"REDUCE with items", dict + items + "\x85R", "{1: 2}"},
      {"REDUCE with a factory", "ccollections\ndefaultdict\nc__builtin__\nlist\n\x85R", "{}"},
      {"REDUCE with the factory None", "ccollections\ndefaultdict\nN\x85R", "{}"},
      {"REDUCE of a list",
       "ccollections\ndeque\n]K\x01"
       "a\x85R",
       "[1]"},
      {"REDUCE of a list, with its greatest length", "ccollections\ndeque\n)K\x05\x86R", "[]"},
      {"REDUCE of a list, from a tuple", "ctorch\nSize\n(K\x01K\x02t\x85R", "(1, 2)"},
      {"REDUCE of a value", "cdatetime\ndate\n(C\x01xtR", "other"},
      {"NEWOBJ", dict + ")\x81", "{}"},
      {"NEWOBJ with attributes", object + ")\x81", "object{}"},
      {"BUILD", object + ")\x81" + items + "b", "object{1: 2}"},
      {"BUILD of a dict, whose attributes are not needed", dict + ")R" + items + "b", "{}"},
      {"BUILD of a value",
       "cnumpy\ndtype\n)RK\x01"
       "b",
       "other"},
      {"BINPERSID", storage, "storage of 6 at 0"},
      {"REDUCE of a tensor", TensorClaim{.offset = "K\x03"}.ops(), "tensor at 3"},
      {"REDUCE of a tensor of an NPU",
       TensorClaim{.offset = "K\x03", .more = "}" + text_op("npu_format_/NC1HWC0") + "\x88s" + text_op("base_sizes_/6/") + "\x88s"}.ops(),
       "tensor at 3"},
      {"REDUCE of a parameter", "ctorch._utils\n_rebuild_parameter\n" + TensorClaim{.offset = "K\x03"}.ops() + "\x88}\x87R", "tensor at 3"},
  });
}

TEST_CASE("calls with too few or too many arguments are refused") {
  const auto tensor = TensorClaim{}.ops(), without_hooks = tensor.substr(0, tensor.size() - 3) + "tR";
  const std::string parameter = "ctorch._utils\n_rebuild_parameter\n", format = "ctorch_npu.npu._format\nFormat\n";
  const std::vector<std::pair<std::string, const char*>> rows = {
      {without_hooks, "not described by storage, offset, size and stride"},
      {TensorClaim{.more = "NN"}.ops(), "not described by storage, offset, size and stride"},
      {parameter + tensor + "\x88\x86R", "a parameter has no tensor"},
      {parameter + "(" + tensor + "\x88}NtR", "a parameter has no tensor"},
      {format + "K\x02K\x02\x86R", "an NPU format is not an integer"},
  };
  for (const auto& [ops, part] : rows) CHECK(has(unpickled(pickle(ops)), part));
  CHECK(unpickled(pickle(format + "K\x02\x85R")) == "2");
}

TEST_CASE("the largest tensor and the longest name of a storage") {
  const auto claim = [](size_t dimensions, size_t name) {
    std::string ones = "(";
    for (size_t i = 0; i < dimensions; ++i) ones += "K\x01";
    return pickle(TensorClaim{.size = ones + "t", .stride = ones + "t", .key = std::string(name, 'k')}.ops());
  };
  CHECK(unpickled(claim(64, 1024)) == "tensor at 0");
  CHECK(has(unpickled(claim(65, 1024)), "not a tuple of integers"));
  CHECK(has(unpickled(claim(64, 1025)), "the name of a storage has 1025 bytes"));
}

TEST_CASE("a storage is made once, however often its id is given") {
  std::string ops = "(" + text_op("storage") + "ctorch\nFloatStorage\n" + text_op("0") + text_op("cpu") + "K\x06tq\x01Q0";
  for (int i = 0; i < 2'000'000; ++i) ops += "h\x01Q0";
  CHECK(unpickled(pickle(ops + "N")) == "None");
}

TEST_CASE("any other instruction is refused by its number") {
  const std::string known =
      "\x80\x95N\x88\x89JKM\x8a\x8bGXT\x8cU\x8d"
      "BC\x8e(}])\x8ft\x85\x86\x87"
      "ae\x90\x91su012qr\x94hjc\x93R\x81"
      "bQ.";
  int refused = 0;
  for (int op = 0; op < 256; ++op) {
    const std::string one(1, static_cast<char>(op)), digits = "0123456789abcdef", shown = op > 0x20 && op < 0x7f ? " '" + one + "'" : "";
    CAPTURE(op);
    const bool is_refused = has(unpickled("\x80\x02" + one), "has the instruction 0x"s + digits[op >> 4] + digits[op & 15] + shown + ",");
    CHECK(is_refused == (known.find(one) == std::string::npos));
    refused += is_refused ? 1 : 0;
  }
  CHECK(refused == 256 - static_cast<int>(known.size()));
}
