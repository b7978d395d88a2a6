// The table of operators. A line names an operator and defines its computation:
//
//   SIM_CANN_OPERATOR(Add, [](Tensor self, Tensor other, Scalar alpha, Out out) { out = at::add(self, other, alpha); })
//
// defines aclnnAddGetWorkspaceSize, which takes the handles of these arguments in this order and keeps their values, and aclnnAdd, which
// computes in a stream. Tensors are views of device memory, so operators only read them. A result is assigned to an Out, which checks its
// sizes and converts it to its dtype and strides. An optional tensor that is absent is undefined.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "objects.hpp"

namespace sim_cann {
/// Called for each tensor; the flag is true if the operator writes it.
using EachTensor = std::function<void(const aclTensor&, bool)>;
using Visitor = std::function<void(const EachTensor&)>;
}  // namespace sim_cann

struct aclOpExecutor {
  const char* name;
  sim_cann::Visitor tensors;  // all tensors that the operator was given
  std::function<void()> run;
  bool finds_sizes = false;  // whether it writes the sizes of a result into a handle of the caller
};

namespace sim_cann {

using at::Scalar;
using at::Tensor;
using Ints = std::vector<int64_t>;
using Bools = std::vector<bool>;
using Tensors = std::vector<Tensor>;
using Scalars = std::vector<Scalar>;
using MaybeScalar = std::optional<Scalar>;
using MaybeInts = std::optional<Ints>;

/// A result, or a tensor that the operator changes.
class Out {
 public:
  Out() = default;
  explicit Out(Tensor tensor) : tensor_(std::move(tensor)) {}
  /// Does nothing if the caller does not request this result.
  void operator=(const Tensor& value) const;
  const Tensor& get() const { return tensor_; }
  bool asked() const { return tensor_.defined(); }
  operator const Tensor&() const { return tensor_; }

 private:
  Tensor tensor_;
};
using Outs = std::vector<Out>;

/// A result whose sizes the operator determines. It is written to the start of a tensor that is large enough, and the tensor's handle gets
/// its sizes. The caller keeps the handle until it has waited for the stream.
class Found {
 public:
  Found() = default;
  Found(Tensor room, aclTensor* handle) : room_(std::move(room)), handle_(handle) {}
  void operator=(const Tensor& value) const;

 private:
  Tensor room_;
  aclTensor* handle_ = nullptr;
};

/// One number for each tensor of a list. Some callers pass the numbers as scalars, others in a tensor.
struct Numbers {
  Scalars values;
};

/// A dtype as an argument.
struct Dtype {
  at::ScalarType value;
  operator at::ScalarType() const { return value; }
};
/// The text of a C string.
using Text = std::string;

// ---- From handles to arguments: Handle is what the caller passes, Kept lives until the operator runs, open() gives the argument. ----

/// Returns the object of a handle. Throws c10::Error if it is of another kind.
template <class H>
const H& object(const H* handle) {
  TORCH_CHECK(handle->kind == H::kExpected, "an argument is not what this operator takes there (kind ",
              static_cast<uint64_t>(handle->kind) & 15, ", not ", static_cast<uint64_t>(H::kExpected) & 15, ")");
  return *handle;
}

template <class T>
struct Argument {  // numbers, which need no conversion
  using Handle = T;
  using Kept = T;
  static Kept keep(Handle h) { return h; }
  static T open(const Kept& k) { return k; }
};

template <>
struct Argument<Tensor> {
  using Handle = const aclTensor*;
  using Kept = std::optional<aclTensor>;
  static Kept keep(Handle h) { return h == nullptr ? Kept() : Kept(object(h)); }
  static Tensor open(const Kept& k) { return k.has_value() ? open_tensor(*k) : Tensor(); }
};
template <>
struct Argument<Out> : Argument<Tensor> {
  static Out open(const Kept& k) { return Out(Argument<Tensor>::open(k)); }
};
template <>
struct Argument<Found> {
  using Handle = aclTensor*;
  struct Kept : std::optional<aclTensor> {
    aclTensor* handle = nullptr;
  };
  static Kept keep(Handle h) {
    Kept out;
    out.emplace(object(h));
    out.handle = h;
    return out;
  }
  static Found open(const Kept& k) { return {open_tensor(*k), k.handle}; }
};
template <>
struct Argument<Tensors> {
  using Handle = const aclTensorList*;
  using Kept = std::vector<aclTensor>;
  static Kept keep(Handle h) { return h == nullptr ? Kept() : object(h).tensors; }
  static Tensors open(const Kept& k) {
    Tensors out;
    for (const auto& t : k) out.push_back(t.dtype == at::ScalarType::Undefined ? Tensor() : open_tensor(t));
    return out;
  }
};
template <>
struct Argument<Outs> : Argument<Tensors> {
  static Outs open(const Kept& k) {
    Outs out;
    for (const auto& t : k) out.emplace_back(open_tensor(t));
    return out;
  }
};

/// Keeps the elements of an array unchanged; an absent array is empty.
template <class T, class H, class Values, Values H::*member>
struct ArrayArgument {
  using Handle = const H*;
  using Kept = Values;
  static Kept keep(Handle h) { return h == nullptr ? Kept() : object(h).*member; }
  static T open(const Kept& k) { return k; }
};
template <>
struct Argument<Ints> : ArrayArgument<Ints, aclIntArray, Ints, &aclIntArray::values> {};
template <>
struct Argument<Bools> : ArrayArgument<Bools, aclBoolArray, Bools, &aclBoolArray::values> {};
template <>
struct Argument<Scalars> : ArrayArgument<Scalars, aclScalarList, Scalars, &aclScalarList::values> {};
template <>
struct Argument<Scalar> : ArrayArgument<Scalar, aclScalar, Scalar, &aclScalar::value> {};

template <>
struct Argument<MaybeScalar> {
  using Handle = const aclScalar*;
  using Kept = MaybeScalar;
  static Kept keep(Handle h) { return h == nullptr ? Kept() : Kept(object(h).value); }
  static MaybeScalar open(const Kept& k) { return k; }
};
template <>
struct Argument<Numbers> {
  using Handle = const void*;
  using Kept = std::pair<std::optional<aclTensor>, Scalars>;
  static Kept keep(Handle h) {
    if (*static_cast<const Kind*>(h) == Kind::Tensor) return {object(static_cast<const aclTensor*>(h)), Scalars()};
    return {std::nullopt, object(static_cast<const aclScalarList*>(h)).values};
  }
  static Numbers open(const Kept& k) {
    if (!k.first.has_value()) return {k.second};
    Numbers out;
    for (const auto& one : open_tensor(*k.first).reshape(-1).unbind()) out.values.push_back(one.item());
    return out;
  }
};
template <>
struct Argument<MaybeInts> {
  using Handle = const aclIntArray*;
  using Kept = MaybeInts;
  static Kept keep(Handle h) { return h == nullptr ? Kept() : Kept(object(h).values); }
  static MaybeInts open(const Kept& k) { return k; }
};
template <>
struct Argument<Dtype> {
  using Handle = int;
  using Kept = at::ScalarType;
  static Kept keep(Handle h) { return dtype_of(h); }
  static Dtype open(const Kept& k) { return {k}; }
};
template <>
struct Argument<Text> {
  using Handle = const char*;
  using Kept = std::string;
  static Kept keep(Handle h) { return h == nullptr ? "" : h; }
  static Text open(const Kept& k) { return k; }
};

// ---- Checks of a call's tensors, and their text in messages. ----

inline void visit(const std::optional<aclTensor>& t, bool writes, const EachTensor& f) {
  if (t.has_value()) f(*t, writes);
}
inline void visit(const std::vector<aclTensor>& list, bool writes, const EachTensor& f) {
  for (const auto& t : list) f(t, writes);
}
template <class T>
void visit(const T&, bool, const EachTensor&) {}
template <class A>
constexpr bool kWrites = std::is_same_v<A, Out> || std::is_same_v<A, Outs> || std::is_same_v<A, Found>;

/// Returns 0, or the error if a tensor has a dtype that the chip does not support.
int check_dtypes(const char* name, const Visitor& tensors);
std::string describe(const char* name, const Visitor& tensors);

/// Saturates a result, as a chip with saturation does: larger values become the largest number, NaN becomes 0, and the float status is set.
void saturate(const Out& out);
inline void saturate(const Outs& outs) {
  for (const auto& out : outs) saturate(out);
}
template <class T>
void saturate(const T&) {}

/// Returns a floating-point tensor in fp32, the precision in which a chip computes; other tensors unchanged.
inline Tensor wide(const Tensor& t) { return t.defined() && t.is_floating_point() ? t.to(at::kFloat) : t; }

/// Returns the elements of a dropout mask, which has a bit for each, lowest first.
Tensor elements_of(const Tensor& mask, at::IntArrayRef sizes);

int launch(aclOpExecutor* executor, void* stream);

template <class Signature>
struct Entry;

template <class... A>
struct Entry<void(A...)> {
  using Function = void (*)(A...);

  static int prepare(const char* name, Function function, typename Argument<A>::Handle... handles, uint64_t* workspace,
                     aclOpExecutor** executor) {
    try {
      auto kept = std::make_shared<const std::tuple<typename Argument<A>::Kept...>>(Argument<A>::keep(handles)...);
      Visitor tensors = [kept](const EachTensor& f) {
        std::apply([&](const typename Argument<A>::Kept&... k) { (visit(k, kWrites<A>, f), ...); }, *kept);
      };
      const int code = check_dtypes(name, tensors);
      if (code != kSuccess) return code;
      *workspace = 0;
      *executor =
          new aclOpExecutor{name, std::move(tensors), [kept, function] { compute(*kept, function); }, (std::is_same_v<A, Found> || ...)};
      return kSuccess;
    } catch (const std::exception& e) {
      return fail(kInvalidArgument, std::string("EZ1001: ") + name + ": " + e.what());
    }
  }

  /// The function behind the exported symbol. Name and function are constants, so that operators of one signature share all other code.
  template <Function function, const char* name>
  static int prepare_this(typename Argument<A>::Handle... handles, uint64_t* workspace, aclOpExecutor** executor) {
    return prepare(name, function, handles..., workspace, executor);
  }

 private:
  static void compute(const std::tuple<typename Argument<A>::Kept...>& kept, Function function) {
    std::tuple<A...> arguments = std::apply([](const auto&... k) { return std::tuple<A...>{Argument<A>::open(k)...}; }, kept);
    std::apply(function, arguments);
    if (saturation_mode()) std::apply([](const auto&... a) { (saturate(a), ...); }, arguments);
  }
};

template <class Lambda>
struct SignatureOf;
template <class L, class... A>
struct SignatureOf<void (L::*)(A...) const> {
  using Type = void(A...);
};
template <class Lambda>
using EntryOf = Entry<typename SignatureOf<decltype(&Lambda::operator())>::Type>;

}  // namespace sim_cann

// The type of aclnnNAMEGetWorkspaceSize follows from the lambda, so it cannot be written in C. The symbol is therefore an indirect
// function: the loader calls resolve_NAME for the address.
#define SIM_CANN_OPERATOR(NAME, ...)                                                                                                  \
  namespace {                                                                                                                         \
  constexpr char name_##NAME[] = "aclnn" #NAME;                                                                                       \
  constexpr auto lambda_##NAME = __VA_ARGS__;                                                                                         \
  using Entry##NAME = sim_cann::EntryOf<std::remove_const_t<decltype(lambda_##NAME)>>;                                                \
  constexpr Entry##NAME::Function function_##NAME = lambda_##NAME;                                                                    \
  }                                                                                                                                   \
  extern "C" {                                                                                                                        \
  __attribute__((used)) static auto resolve_##NAME() -> int (*)() {                                                                   \
    return reinterpret_cast<int (*)()>(reinterpret_cast<void*>(&Entry##NAME::prepare_this<function_##NAME, name_##NAME>));            \
  }                                                                                                                                   \
  SIM_CANN_API int aclnn##NAME##GetWorkspaceSize() __attribute__((ifunc("resolve_" #NAME)));                                          \
  SIM_CANN_API int aclnn##NAME(void*, uint64_t, aclOpExecutor* executor, void* stream) { return sim_cann::launch(executor, stream); } \
  }
