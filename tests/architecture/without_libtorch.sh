#!/bin/sh
# without_libtorch.sh PROGRAM LIBRARY LINKED...: fails if PROGRAM or LIBRARY uses libtorch, or if LINKED, the libraries that its users link,
# names it.
#   Then the same three for a program and a library with libtorch, which the check must find.
uses() { # PROGRAM LIBRARY LINKED: prints every trace of libtorch
  ldd "$1" | grep -E 'libtorch|libc10'
  nm -uC "$2" 2> /dev/null | grep -E '\b(c10|at|torch|caffe2)::' | head -n 5
  echo "$3" | grep -w torch
}
count() { uses "$@" | wc -l; }
found=$(uses "$1" "$2" "$3")
[ -z "$found" ] || { echo "libtorch is used: $found"; exit 1; }
[ "$(count "$4" /dev/null '')" -gt 0 ] && [ "$(count /bin/sh "$5" '')" -gt 0 ] && [ "$(count /bin/sh /dev/null "$6")" -gt 0 ] || {
  echo "libtorch is not found in $4, $5 and $6 either, so this check cannot find it"
  exit 1
}
