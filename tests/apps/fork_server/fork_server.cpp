// Runs many command lines of a program, each in a process that is forked from one that has already loaded the program's libraries. The
// start of a program with libtorch takes 0.18 s, nearly all of it for the registration of operators. programs.py loads this library with
// LD_PRELOAD.
//
// A request is the length of its text (4 bytes), sent with the descriptors for the child's output and messages, and then the text: the
// folder in which the command runs, and the words of the command, each followed by a zero byte. The answers are the number of the process
// and its status from waitpid(), with 4 bytes each.
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using Main = int (*)(int, char**, char**);
using Start = int (*)(Main, int, char**, void (*)(), void (*)(), void (*)(), void*);

Main main_of_program = nullptr;
int requests = -1;  // the socket

struct Request {
  std::string text;
  std::array<int, 2> outputs{};
};

// Returns whether there was another request.
bool receive(Request& request) {
  uint32_t length = 0;
  iovec part{&length, sizeof length};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof request.outputs)> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const cmsghdr* descriptors = nullptr;
  if (::recvmsg(requests, &message, MSG_WAITALL) != sizeof length || (message.msg_flags & MSG_CTRUNC) != 0 ||
      (descriptors = CMSG_FIRSTHDR(&message)) == nullptr)
    return false;
  std::memcpy(request.outputs.data(), CMSG_DATA(descriptors), sizeof request.outputs);
  request.text.resize(length);
  return ::recv(requests, request.text.data(), length, MSG_WAITALL) == static_cast<ssize_t>(length);
}

int run(Request& request, char** environment) {
  ::close(requests);
  ::dup2(request.outputs[0], 1);
  ::dup2(request.outputs[1], 2);
  for (const int output : request.outputs) ::close(output);
  std::vector<char*> words;
  for (size_t at = 0; at < request.text.size(); at += std::strlen(&request.text[at]) + 1) words.push_back(&request.text[at]);
  if (::chdir(words.at(0)) != 0) return 127;
  words.push_back(nullptr);
  return main_of_program(static_cast<int>(words.size()) - 2, &words[1], environment);
}

int serve(int argc, char** argv, char** environment) {
  const char* socket = std::getenv("NPU_TRAIN_FORK_SERVER");
  if (socket == nullptr) return main_of_program(argc, argv, environment);
  requests = std::atoi(socket);
  ::unsetenv("NPU_TRAIN_FORK_SERVER");  // so that programs which this program starts run normally
  ::unsetenv("LD_PRELOAD");
  for (Request request; receive(request);) {
    const int32_t child = ::fork();
    if (child < 0) break;
    if (child == 0) std::exit(run(request, ::environ));
    for (const int output : request.outputs) ::close(output);
    int status = 0;
    if (::send(requests, &child, sizeof child, MSG_NOSIGNAL) < 0) break;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (::send(requests, &status, sizeof status, MSG_NOSIGNAL) < 0) break;
  }
  ::_exit(0);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int __libc_start_main(Main main, int argc, char** argv, void (*init)(), void (*fini)(),
                                                                        void (*of_loader)(), void* stack_end) {
  main_of_program = main;
  const auto start = reinterpret_cast<Start>(::dlsym(RTLD_NEXT, "__libc_start_main"));
  return start(serve, argc, argv, init, fini, of_loader, stack_end);
}
