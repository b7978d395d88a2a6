#include "npu_train/nn/own_generator.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>

#include <optional>
#include <string>
#include <utility>

#include "npu_train/trace/op_mode.hpp"

namespace npu_train {
namespace {

thread_local at::Generator generator_of_thread;

bool takes_generator(const c10::Argument& argument) {
  auto type = argument.real_type();
  if (type->kind() == c10::OptionalType::Kind) type = type->castRaw<c10::OptionalType>()->getElementType();
  return type->kind() == c10::GeneratorType::Kind;
}

// Returns the position of the generator among the arguments; -1 if there is none.
int64_t generator_argument(const c10::FunctionSchema& schema) {
  const auto& arguments = schema.arguments();
  for (size_t i = 0; i < arguments.size(); ++i)
    if (takes_generator(arguments[i])) return static_cast<int64_t>(i);
  return -1;
}

// Returns whether all tensors and the device among the arguments are on the CPU.
bool draws_on_cpu(const torch::jit::Stack& stack, size_t count) {
  for (const auto& value : torch::jit::last(stack, count)) {
    if (value.isTensor() && value.toTensor().defined() && !value.toTensor().is_cpu()) return false;
    if (value.isDevice() && !value.toDevice().is_cpu()) return false;
  }
  return true;
}

// Returns the overload of rand, randn, randint or randperm that has a generator argument.
std::optional<c10::OperatorHandle> with_generator(const c10::FunctionSchema& schema) {
  for (const char* name : {"aten::rand", "aten::randn", "aten::randint", "aten::randperm"})
    if (schema.name() == name) {
      const auto& form = schema.overload_name();
      return c10::Dispatcher::singleton().findSchema({name, form.empty() ? "generator" : form + "_generator"});
    }
  return std::nullopt;
}

}  // namespace

struct OwnGenerator::Impl final : detail::OpMode {
  explicit Impl(at::Generator g) : generator(std::move(g)), before(std::exchange(generator_of_thread, generator)), guard(*this) {}
  ~Impl() override { generator_of_thread = before; }

  void call(const c10::OperatorHandle& op, torch::jit::Stack& stack) override {
    const auto& schema = op.schema();
    const auto count = schema.arguments().size();
    if (const auto at = generator_argument(schema); at >= 0) {
      auto& given = stack[stack.size() - count + static_cast<size_t>(at)];
      if (given.isNone() && draws_on_cpu(stack, count)) given = c10::IValue(generator);
      return detail::call_below(op, stack);
    }
    const auto form = with_generator(schema);
    if (!form || !draws_on_cpu(stack, count)) return detail::call_below(op, stack);
    stack.insert(stack.end() - static_cast<int64_t>(count) + generator_argument(form->schema()), c10::IValue(generator));
    detail::call_below(*form, stack);
  }

  at::Generator generator;
  at::Generator before;  // generator of the outer scope
  detail::OpModeGuard guard;
};

OwnGenerator::OwnGenerator(at::Generator generator) : impl_(std::make_unique<Impl>(std::move(generator))) {}
OwnGenerator::~OwnGenerator() = default;

at::Generator host_generator() { return generator_of_thread.defined() ? generator_of_thread : at::detail::getDefaultCPUGenerator(); }

}  // namespace npu_train
